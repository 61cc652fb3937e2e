// Tensors of a device into plain memory of the host. They go through pinned memory, a piece at a time: the device fills
// one while the host's threads empty another. So it takes as long as the bus does, and little memory is pinned, however
// large they are.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <optional>

namespace mortise {

class ToHost {
 public:
  // Behind what lies on this thread's queue. `to` has room for every element of `from`, dense; they are there when
  // `finish` has returned.
  void copy(const at::Tensor& from, void* to);
  void finish();

 private:
  struct Piece {
    at::Tensor pinned;
    std::optional<c10::Event> arrives;
    void* to = nullptr;  // where its bytes go; NULL: it is empty
    int64_t bytes = 0;
  };
  static void empty(Piece& piece);
  static constexpr int64_t kBytes = int64_t{16} << 20;  // of a piece
  std::array<Piece, 4> pieces_;
  size_t next_ = 0;  // the one that was filled longest ago
};

}  // namespace mortise
