#include "core/loop/update.hpp"

#include <ATen/ops/full.h>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {

Optimizer::Optimizer(const DeclaredOptimizer& declared, Host& host) : declared_(declared) {
  for (const auto& slot : declared.slots) {
    Slot& s = slots_.emplace_back(Slot{&slot, &host.parameters().state(*slot.param), {}, {}});
    for (const auto& spec : slot.states)
      s.states.push_back(
          at::full(spec.sizes, spec.fill, at::TensorOptions().dtype(scalar_type(spec.dtype)).device(host.device())));
    for (auto& t : s.states) s.handles.push_back(borrow(t));
  }
}

std::vector<NamedState> Optimizer::states() const {
  std::vector<NamedState> all;
  for (const auto& slot : slots_)
    for (size_t i = 0; i < slot.states.size(); ++i)
      all.push_back({slot.declared->param->name + "/" + slot.declared->states[i].name, slot.states[i]});
  return all;
}

void Optimizer::step(const Ledger& ledger) {
  if (slots_.empty()) return;
  slices_.clear();
  for (auto& s : slots_) {
    const ParameterState& p = *s.parameter;
    if (!p.has_gradient) continue;
    mortise_slice slice{};
    slice.struct_size = sizeof slice;
    slice.n_states = static_cast<uint32_t>(s.handles.size());
    slice.group = p.declared->info.group;
    slice.param = p.declared;
    slice.info = &p.declared->info;
    slice.length = p.declared->info.numel;
    slice.master = borrow(p.master);
    slice.grad = borrow(p.grad);
    slice.value = p.value.is_same(p.master) ? nullptr : borrow(p.value);
    slice.states = s.handles.data();
    slices_.push_back(slice);
  }
  declared_.object.call(&mortise_optimizer::step, "step", slices_.data(), static_cast<uint32_t>(slices_.size()),
                        &ledger.c());
}

}  // namespace mortise
