#include "core/loop/state_store.hpp"

#include <ATen/ops/from_blob.h>

#include "core/abi/states.hpp"

namespace mortise {
namespace {

int64_t blocks_of(const at::Tensor& t) { return in_blocks(static_cast<int64_t>(t.nbytes())); }

}  // namespace

StateStore::StateStore(const Provided<mortise_state_store>& store, int64_t bytes) : store_(store) {
  void* all = nullptr;
  store_.call(&mortise_state_store::open, "open", bytes, &all);
  all_ = static_cast<std::byte*>(all);
}

at::Tensor StateStore::place(at::IntArrayRef sizes, at::ScalarType dtype) {
  const at::Tensor t = at::from_blob(all_ + end_, sizes, dtype);
  end_ += blocks_of(t);
  return t;
}

void StateStore::fetch(const std::vector<at::Tensor>& parts) const {
  std::vector<mortise_extent> extents;
  for (const at::Tensor& t : parts)
    extents.push_back({static_cast<const std::byte*>(t.const_data_ptr()) - all_, blocks_of(t)});
  store_.call(&mortise_state_store::fetch, "fetch", static_cast<const mortise_extent*>(extents.data()),
              static_cast<uint32_t>(extents.size()));
}

std::vector<at::Tensor> StateStore::take(const std::vector<at::Tensor>& parts) const {
  void* piece = nullptr;
  store_.call(&mortise_state_store::take, "take", &piece);
  auto* at = static_cast<std::byte*>(piece);
  std::vector<at::Tensor> here;
  for (const at::Tensor& t : parts) {
    here.push_back(at::from_blob(at, t.sizes(), t.options()));
    at += blocks_of(t);
  }
  return here;
}

}  // namespace mortise
