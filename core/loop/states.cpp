#include "core/loop/states.hpp"

#include <ATen/ops/full.h>

#include "core/host/handle.hpp"

namespace mortise {

States::States(const std::vector<ParamStates>& declared, Host& host) {
  for (const ParamStates& beside : declared) {
    Slot& s = slots_.emplace_back(Slot{&host.parameters().state(*beside.param), beside.states, {}, {}});
    for (const StateSpec& spec : beside.states)
      s.tensors.push_back(
          at::full(spec.sizes, spec.fill, at::TensorOptions().dtype(scalar_type(spec.dtype)).device(host.device())));
    for (auto& t : s.tensors) s.handles.push_back(borrow(t));
  }
}

std::vector<NamedState> States::named() const {
  std::vector<NamedState> all;
  for (const Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i)
      all.push_back(
          {slot.parameter->declared->name + "/" + slot.declared[i].name, slot.tensors[i], slot.declared[i].dtype});
  return all;
}

void States::copy_masters() {
  for (Slot& slot : slots_)
    for (size_t i = 0; i < slot.tensors.size(); ++i)
      if (slot.declared[i].copies_master) slot.tensors[i].copy_(slot.parameter->master);
}

const std::vector<mortise_slice>& States::slices(Which which) {
  slices_.clear();
  for (Slot& s : slots_) {
    const ParameterState& p = *s.parameter;
    if (which == Which::kWhereGradients && !p.has_gradient) continue;
    mortise_slice slice{};
    slice.struct_size = sizeof slice;
    slice.n_states = static_cast<uint32_t>(s.handles.size());
    slice.group = p.declared->info.group;
    slice.param = p.declared;
    slice.info = &p.declared->info;
    slice.length = p.declared->info.numel;
    slice.master = borrow(p.master);
    slice.grad = which != Which::kAll && p.has_gradient ? borrow(p.grad) : nullptr;
    slice.value = p.value.is_same(p.master) ? nullptr : borrow(p.value);
    slice.states = s.handles.data();
    slices_.push_back(slice);
  }
  return slices_;
}

}  // namespace mortise
