#include "core/loop/states.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "core/host/handle.hpp"
#include "core/host/placed.hpp"

namespace mortise {
namespace {

at::Tensor part_of(const at::Tensor& t, const Piece& piece) { return t.view(-1).narrow(0, piece.offset, piece.length); }

// Elements of a parameter that master and gradient have.
Piece present(const mortise_param& p) { return p.is_sharded() ? p.shards.own : Piece{0, p.info.numel}; }

// Of a tensor that has those; as it is, where they are all that is wanted.
at::Tensor part_of(const at::Tensor& t, const Piece& present, const Piece& wanted) {
  return present.length == wanted.length ? t : part_of(t, {wanted.offset - present.offset, wanted.length});
}

// The compute copy, or undefined: it is the master, comes from the host, or is cast later, when every rank has all
// masters or the value is gathered.
at::Tensor value_to_write(const ParameterState& p, const ParamStates& states, const Piece& wanted) {
  if (p.declared->is_updated_on_host()) return {};
  if (p.declared->is_sharded())
    return p.own_value.defined() ? part_of(p.own_value, present(*p.declared), wanted) : at::Tensor();
  return !states.pieces.empty() || p.value.is_same(p.master) ? at::Tensor() : p.value;
}

}  // namespace

// Of what lies along an axis each rank there sends what it has.
static at::Tensor put_together(const at::Tensor& own, const InParts& parts, const Ranks& ranks) {
  const Placement& at = parts.param.placement;
  if (at.owner >= 0) {
    const at::Tensor whole = at.owner == at.rank ? own.contiguous() : at::empty(parts.whole, own.options());
    ranks.broadcast_along(at.axis, whole, at.owner);
    return whole;
  }
  const at::Tensor whole = at::empty(parts.whole, own.options());
  for (int rank = 0; rank < at.ranks; ++rank) {
    const at::Tensor part = rank == at.rank ? own.contiguous() : at::empty(parts.sizes, own.options());
    ranks.broadcast_along(at.axis, part, rank);
    placed_part(whole, at, rank).copy_(part);
  }
  return whole;
}

at::Tensor gathered(const at::Tensor& own, const InParts& parts, const Ranks& ranks, c10::Device device) {
  at::Tensor all = parts.pieces.empty() ? own.to(device) : at::empty(parts.sizes, own.options().device(device));
  for (size_t rank = 0; rank < parts.pieces.size(); ++rank) {
    const at::Tensor part = part_of(all, parts.pieces[rank]);
    if (part.numel() == 0) continue;
    if (static_cast<int32_t>(rank) == parts.param.info.replica) part.copy_(own.view(-1));
    ranks.broadcast(part, parts.param, static_cast<int32_t>(rank));
  }
  if (parts.param.is_placed()) all = put_together(all, parts, ranks);
  return ranks.rank() == 0 ? all.cpu() : at::Tensor();
}

States::States(const std::vector<ParamStates>& declared, Host& host, StateStore* store) : device_(host.device()) {
  for (const ParamStates& beside : declared) {
    Slot& s = slots_.emplace_back(Slot{&host.parameters().state(*beside.param), beside, {}, {}});
    const c10::Device device = beside.param->is_updated_on_host() ? c10::Device(c10::kCPU) : device_;
    for (const StateSpec& spec : beside.states) {
      const std::vector<int64_t> sizes = own_sizes(s, spec);
      const at::ScalarType type = scalar_type(spec.dtype);
      if (store && beside.param->is_stored()) {
        s.tensors.push_back(store->place(sizes, type));
        if (spec.fill != 0) s.tensors.back().fill_(spec.fill);
      } else {
        s.tensors.push_back(at::full(sizes, spec.fill, at::TensorOptions().dtype(type).device(device)));
      }
    }
    cut(s);
  }
}

void States::cut(Slot& s) {
  const Piece own = s.declared.own();
  std::vector<Piece> all = parts_of(s.declared);
  if (all.empty()) all.push_back(own);  // another rank's
  for (const Piece& elements : all) {
    Part& part = s.parts.emplace_back(Part{elements, {}, {}, {}, {}});
    for (size_t i = 0; i < s.tensors.size(); ++i) {
      const Piece numbers = piece_of(s.declared.states[i], {elements.offset - own.offset, elements.length});
      part.states.push_back(all.size() == 1 ? s.tensors[i] : part_of(s.tensors[i], numbers));
      part.handles.push_back(borrow(part.states.back()));
    }
  }
}

std::vector<int64_t> States::own_sizes(const Slot& s, const StateSpec& spec) {
  return is_whole(s) ? spec.sizes : std::vector{piece_of(spec, s.declared.own()).length};
}

bool States::is_whole(const Slot& s) { return s.declared.own().length == s.declared.param->info.numel; }

std::vector<NamedState> States::named() const {
  std::vector<NamedState> all;
  for (const Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i) {
      const StateSpec& spec = slot.declared.states[i];
      NamedState& named = all.emplace_back(NamedState{slot.parameter->declared->name + "/" + spec.name, slot.tensors[i],
                                                      spec.dtype, own_sizes(slot, spec)});
      const mortise_param& p = *slot.declared.param;
      named.is_part = p.is_placed() || !is_whole(slot);
      if (!named.is_part) continue;
      named.whole = p.is_placed() ? spec.whole : spec.sizes;
      named.placement = p.is_placed() ? &p.placement : nullptr;
      named.offset = piece_of(spec, slot.declared.own()).offset;
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
      const mortise_param& p = *slot.declared.param;
      if (slot.declared.pieces.empty() && !p.is_placed()) continue;
      const StateSpec& spec = slot.declared.states[i];
      InParts parts{p, spec.sizes, spec.whole, {}};
      for (const Piece& piece : slot.declared.pieces) parts.pieces.push_back(piece_of(spec, piece));
      named = {.name = named.name,
               .tensor = mortise::gathered(slot.tensors[i], parts, ranks, device_),
               .dtype = named.dtype,
               .is_own = true};
    }
  return all;
}

void States::copy_masters() {
  for (Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i)
      if (slot.declared.states[i].copies_master)
        slot.tensors[i].view(-1).copy_(
            part_of(slot.parameter->master, present(*slot.parameter->declared), slot.declared.own()).view(-1));
}

const std::vector<mortise_slice>& States::slices(Which which) {
  slices_.clear();
  for (Slot& s : slots_) {
    const ParameterState& p = *s.parameter;
    const mortise_param& declared = *p.declared;
    // Another rank's. Who does not update makes the same calls on every rank.
    if (s.declared.own().length == 0 && !(declared.is_in_parts() && which != Which::kWhereGradients)) continue;
    if (which == Which::kWhereGradients && !p.has_gradient) continue;
    for (Part& part : s.parts) {
      mortise_slice& slice = slices_.emplace_back();
      slice.struct_size = sizeof slice;
      slice.n_states = static_cast<uint32_t>(part.handles.size());
      slice.group = declared.info.group;
      slice.param = p.declared;
      slice.info = &declared.info;
      slice.offset = part.elements.offset;
      slice.length = part.elements.length;
      part.master = part_of(p.master, present(declared), part.elements);
      slice.master = borrow(part.master);
      if (which != Which::kAll && p.has_gradient) {
        const at::Tensor& grad = declared.is_sharded() ? p.own_grad : p.grad;
        const at::Tensor wanted = part_of(grad, present(declared), part.elements);
        part.grad = wanted.is_same(grad) ? at::Tensor() : wanted;  // one that is whole must go when its step is over
        slice.grad = borrow(wanted);
      }
      part.value = value_to_write(p, s.declared, part.elements);
      slice.value = borrow(part.value);
      slice.states = part.handles.data();
    }
  }
  return slices_;
}

void States::let_go() {
  for (Slot& s : slots_)
    for (Part& part : s.parts) part.grad = at::Tensor();
}

}  // namespace mortise
