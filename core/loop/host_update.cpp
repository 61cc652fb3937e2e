#include "core/loop/host_update.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <utility>

#include "core/host/handle.hpp"

namespace mortise {
namespace {

// The numbers of a ledger as they are now. Waits for the device.
struct LedgerOnHost {
  explicit LedgerOnHost(const Ledger& l)
      : all{l.scale.cpu(), l.multiplier.cpu(),   l.verdict.cpu(),  l.applied.cpu(),
            l.lr.cpu(),    l.weight_decay.cpu(), l.attempted.cpu()},
        c{sizeof c,       l.c().n_groups, borrow(all[0]), borrow(all[1]), borrow(all[2]),
          borrow(all[3]), borrow(all[4]), borrow(all[5]), borrow(all[6])} {}
  bool applies() const { return all[2].item<double>() != 0; }
  std::array<at::Tensor, 7> all;
  mortise_ledger c;
};

c10::Event mark_of(const c10::Stream& queue) {
  c10::Event mark(queue.device_type());
  mark.record(queue);
  return mark;
}

}  // namespace

std::vector<HostUpdate::Piece> HostUpdate::in_pieces(const std::vector<mortise_slice>& slices) const {
  std::vector<Piece> pieces;
  UpdatePieces ends;
  for (const mortise_slice& slice : slices) {
    if (ends.begins(static_cast<int64_t>(share(slice.grad).nbytes()))) pieces.emplace_back();
    pieces.back().slices.push_back(slice);
  }
  return pieces;
}

at::Tensor HostUpdate::pinned_like(const at::Tensor& t, at::ScalarType dtype) const {
  return at::empty(t.sizes(), at::TensorOptions().dtype(dtype).pinned_memory(down_.has_value()));
}

void HostUpdate::bring_down(Piece& piece, bool writes_value) const {
  const c10::OptionalStreamGuard guard(down_);
  for (mortise_slice& slice : piece.slices) {
    const at::Tensor grad = share(slice.grad);
    piece.grads.push_back(pinned_like(grad, grad.scalar_type()));
    piece.grads.back().copy_(grad, /*non_blocking=*/true);
    slice.grad = borrow(piece.grads.back());
    piece.values.push_back(pinned_like(share(slice.master), scalar_type(slice.info->value_dtype)));
    if (writes_value) slice.value = borrow(piece.values.back());
  }
  if (down_) piece.arrived = mark_of(*down_);
}

void HostUpdate::bring_up(Piece& piece, bool writes_value) const {
  const c10::OptionalStreamGuard guard(up_);
  for (size_t i = 0; i < piece.slices.size(); ++i) {
    const mortise_slice& slice = piece.slices[i];
    const at::Tensor& value = piece.values[i];
    if (!writes_value) value.copy_(share(slice.master));
    const at::Tensor there = host_.parameters().updated_value(*slice.param, {slice.offset, slice.length});
    there.copy_(value.view(-1), /*non_blocking=*/true);
  }
  piece = {};  // pinned memory is not given away before its copies are over
}

void HostUpdate::fetch_states(Piece& piece) const {
  for (const mortise_slice& slice : piece.slices)
    for (uint32_t i = 0; i < slice.n_states && store_ && slice.param->is_stored(); ++i)
      piece.stored.push_back(share(slice.states[i]));
  if (!piece.stored.empty()) store_->fetch(piece.stored);
}

void HostUpdate::take_states(Piece& piece) const {
  if (piece.stored.empty()) return;
  piece.here = store_->take(piece.stored);
  for (const at::Tensor& t : piece.here) piece.handles.push_back(borrow(t));
  mortise_tensor* const* next = piece.handles.data();
  for (mortise_slice& slice : piece.slices)
    if (slice.param->is_stored()) slice.states = std::exchange(next, next + slice.n_states);
}

void HostUpdate::run(const std::vector<mortise_slice>& slices, bool writes_value, const Ledger& ledger,
                     const Update& update) {
  const c10::Device device = host_.device();
  const c10::impl::VirtualGuardImpl queues(device.type());
  if (!device.is_cpu() && !down_) {
    down_ = queues.getStreamFromGlobalPool(device);
    up_ = queues.getStreamFromGlobalPool(device);
  }
  std::vector<Piece> pieces = in_pieces(slices);
  if (down_) mark_of(queues.getStream(device)).block(*down_);  // gradients are complete there
  bring_down(pieces.front(), writes_value);
  const LedgerOnHost on_host(ledger);
  const bool applies = on_host.applies();
  if (applies) fetch_states(pieces.front());
  for (size_t i = 0; i < pieces.size() && applies; ++i) {
    if (i + 1 < pieces.size()) {
      bring_down(pieces[i + 1], writes_value);
      fetch_states(pieces[i + 1]);
    }
    if (pieces[i].arrived) pieces[i].arrived->synchronize();
    take_states(pieces[i]);
    {
      const OnHost here;
      update(pieces[i].slices, on_host.c);
    }
    if (!pieces[i].stored.empty()) store_->put();
    bring_up(pieces[i], writes_value);
  }
  if (store_) store_->finish();
  for (const auto& queue : {down_, up_})
    if (queue) mark_of(*queue).block(queues.getStream(device));
}

}  // namespace mortise
