#include "core/loop/update.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <map>

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

void Optimizer::step(const Ledger& ledger, int64_t applied) {
  if (slots_.empty()) return;
  if (declared_.simple) step_simple(ledger, applied);
  else step_device(ledger);
}

void Optimizer::step_device(const Ledger& ledger) {
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
  declared_.device.call(&mortise_optimizer::step, "step", slices_.data(), static_cast<uint32_t>(slices_.size()),
                        &ledger.c());
}

// The simple form reads the verdict, the multiplier and the rates on the host: one synchronisation a step, declared in
// its plugin.toml.
void Optimizer::step_simple(const Ledger& ledger, int64_t applied) {
  if (ledger.verdict.item<double>() == 0) return;
  const at::Tensor lr = ledger.lr.cpu(), decay = ledger.weight_decay.cpu();
  std::map<int32_t, std::vector<Slot*>> groups;
  for (auto& s : slots_)
    if (s.parameter->has_gradient) groups[s.parameter->declared->info.group].push_back(&s);
  for (auto& [group, members] : groups) {
    mortise_list params, grads;
    std::vector<mortise_list> states(declared_.simple.object->n_states);
    std::vector<mortise_list*> state_handles;
    for (Slot* s : members) {
      params.tensors.push_back(s->parameter->master);
      grads.tensors.push_back(s->parameter->grad);
      for (size_t i = 0; i < states.size(); ++i) states[i].tensors.push_back(s->states[i]);
    }
    for (auto& l : states) state_handles.push_back(&l);
    mortise_optimizer_group g{};
    g.struct_size = sizeof g;
    g.n_states = declared_.simple.object->n_states;
    g.lr = lr.const_data_ptr<double>()[group];
    g.weight_decay = decay.const_data_ptr<double>()[group];
    g.grad_multiplier = ledger.multiplier.item<double>();
    g.applied = applied;
    g.params = &params;
    g.grads = &grads;
    g.state = state_handles.data();
    declared_.simple.call(&mortise_optimizer_simple::step, "step", static_cast<const mortise_optimizer_group*>(&g));
  }
}

}  // namespace mortise
