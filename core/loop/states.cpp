#include "core/loop/states.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "core/host/handle.hpp"

namespace mortise {
namespace {

at::Tensor part_of(const at::Tensor& t, const Piece& piece) { return t.view(-1).narrow(0, piece.offset, piece.length); }

}  // namespace

States::States(const std::vector<ParamStates>& declared, Host& host) : rank_(host.services.world.rank) {
  for (const ParamStates& beside : declared) {
    Slot& s = slots_.emplace_back(Slot{&host.parameters().state(*beside.param), beside, {}, {}, {}, {}});
    for (const StateSpec& spec : beside.states) {
      const std::vector<int64_t> part = is_whole(s) ? spec.sizes : std::vector{piece_of(spec, piece(s)).length};
      s.tensors.push_back(
          at::full(part, spec.fill, at::TensorOptions().dtype(scalar_type(spec.dtype)).device(host.device())));
    }
    for (auto& t : s.tensors) s.handles.push_back(borrow(t));
  }
}

bool States::is_whole(const Slot& s) const { return piece(s).length == s.declared.param->info.numel; }

Piece States::piece(const Slot& s) const {
  if (!s.declared.pieces.empty()) return s.declared.pieces[static_cast<size_t>(rank_)];
  return {0, s.declared.param->info.numel};
}

std::vector<NamedState> States::named() const {
  std::vector<NamedState> all;
  for (const Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i) {
      const StateSpec& spec = slot.declared.states[i];
      NamedState& named =
          all.emplace_back(NamedState{slot.parameter->declared->name + "/" + spec.name, slot.tensors[i], spec.dtype});
      if (is_whole(slot)) continue;
      named.is_part = true;
      named.whole = spec.sizes;
      named.offset = piece_of(spec, piece(slot)).offset;
    }
  return all;
}

// One state at a time, so that a rank never has more than one of them as a whole.
std::vector<NamedState> States::gathered(const Ranks& ranks) const {
  std::vector<NamedState> all = named();
  size_t n = 0;
  for (const Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i) {
      NamedState& named = all[n++];
      if (slot.declared.pieces.empty()) continue;
      const StateSpec& spec = slot.declared.states[i];
      const at::Tensor whole = at::empty(spec.sizes, slot.tensors[i].options());
      for (size_t rank = 0; rank < slot.declared.pieces.size(); ++rank) {
        const at::Tensor part = part_of(whole, piece_of(spec, slot.declared.pieces[rank]));
        if (part.numel() == 0) continue;
        if (static_cast<int32_t>(rank) == rank_) part.copy_(slot.tensors[i].view(-1));
        ranks.broadcast(part, static_cast<int32_t>(rank));
      }
      named = {named.name, rank_ == 0 ? whole.cpu() : at::Tensor(), named.dtype};
    }
  return all;
}

void States::copy_masters() {
  for (Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i)
      if (slot.declared.states[i].copies_master)
        slot.tensors[i].view(-1).copy_(part_of(slot.parameter->master, piece(slot)));
}

const std::vector<mortise_slice>& States::slices(Which which) {
  slices_.clear();
  for (Slot& s : slots_) {
    const ParameterState& p = *s.parameter;
    const Piece own = piece(s);
    if (own.length == 0) continue;  // another rank's
    if (which == Which::kWhereGradients && !p.has_gradient) continue;
    mortise_slice slice{};
    slice.struct_size = sizeof slice;
    slice.n_states = static_cast<uint32_t>(s.handles.size());
    slice.group = p.declared->info.group;
    slice.param = p.declared;
    slice.info = &p.declared->info;
    slice.offset = own.offset;
    slice.length = own.length;
    const bool has_gradient = which != Which::kAll && p.has_gradient;
    slice.master = borrow(p.master);
    slice.grad = has_gradient ? borrow(p.grad) : nullptr;
    slice.value = p.value.is_same(p.master) ? nullptr : borrow(p.value);
    if (!is_whole(s)) {
      s.master = part_of(p.master, own);
      s.grad = has_gradient ? part_of(p.grad, own) : at::Tensor();
      slice.master = borrow(s.master);
      slice.grad = has_gradient ? borrow(s.grad) : nullptr;
    }
    if (!s.declared.pieces.empty()) slice.value = nullptr;  // cast when every rank has all masters
    slice.states = s.handles.data();
    slices_.push_back(slice);
  }
  return slices_;
}

}  // namespace mortise
