#include "core/host/to_host.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace mortise {

void ToHost::copy(const at::Tensor& from, void* to) {
  if (from.numel() == 0) return;
  const at::Tensor bytes = from.contiguous().view({-1}).view(at::kByte);
  const c10::Device device = from.device();
  for (int64_t done = 0; done < bytes.numel(); done += kBytes) {
    Piece& piece = pieces_[next_++ % pieces_.size()];
    empty(piece);
    if (!piece.pinned.defined())
      piece.pinned = at::empty({kBytes}, at::TensorOptions(at::kByte).pinned_memory(!device.is_cpu()));
    piece.bytes = std::min(kBytes, bytes.numel() - done);
    piece.pinned.narrow(0, 0, piece.bytes).copy_(bytes.narrow(0, done, piece.bytes), /*non_blocking=*/true);
    piece.to = static_cast<std::byte*>(to) + done;
    if (device.is_cpu()) continue;
    piece.arrives.emplace(device.type());
    piece.arrives->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
}

void ToHost::empty(Piece& piece) {
  if (!piece.to) return;
  if (piece.arrives) piece.arrives->synchronize();
  at::from_blob(piece.to, {piece.bytes}, at::kByte).copy_(piece.pinned.narrow(0, 0, piece.bytes));
  piece.to = nullptr;
}

void ToHost::finish() {
  for (size_t i = 0; i < pieces_.size(); ++i) empty(pieces_[next_++ % pieces_.size()]);
}

}  // namespace mortise
