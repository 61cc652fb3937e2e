// Tensors in the store that a plugin provides: each begins with a block. As memory they are there between two updates;
// in an update their bytes come and go by pieces.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/abi/provided.hpp"
#include "mortise/optimizer.h"

namespace mortise {

class StateStore {
 public:
  // Opens it, with room for `bytes`.
  StateStore(const Provided<mortise_state_store>& store, int64_t bytes);
  // The next one, of zeros.
  at::Tensor place(at::IntArrayRef sizes, at::ScalarType dtype);

  // Begins to bring parts of what was placed, which together are a piece of an update.
  void fetch(const std::vector<at::Tensor>& parts) const;
  // Waits for the piece that was fetched first and not taken yet: its parts, in memory that may be written until `put`.
  std::vector<at::Tensor> take(const std::vector<at::Tensor>& parts) const;
  void put() const { store_.call(&mortise_state_store::put, "put", uint32_t{0}); }
  // Waits until what was put is stored.
  void finish() const { store_.call(&mortise_state_store::finish, "finish", uint32_t{0}); }

 private:
  Provided<mortise_state_store> store_;
  std::byte* all_ = nullptr;
  int64_t end_ = 0;
};

}  // namespace mortise
