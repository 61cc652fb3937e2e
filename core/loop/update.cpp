#include "core/loop/update.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <map>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {
namespace {

std::vector<int64_t> state_sizes(const mortise_param& p, std::string_view relation, const std::string& plugin) {
  if (relation == "same") return p.sizes;
  if (relation == "scalar") return {};
  std::vector<int64_t> sizes = p.sizes;
  if (relation == "rows" && !sizes.empty()) sizes.pop_back();
  else if (relation == "columns" && sizes.size() > 1) sizes.erase(sizes.end() - 2);
  else
    throw PluginError(MORTISE_E_ARGUMENT,
                      plugin + " has a state of " + p.name + " with the relation `" + std::string(relation) +
                          "`; relations are same, rows, columns, scalar",
                      plugin);
  return sizes;
}

}  // namespace

Optimizer::Optimizer(Plugins& plugins, int member, const std::vector<mortise_param*>& params)
    : by_(&plugins.start(member)), params_(params) {
  if (plugins.attachment(member, "optimizer", "object").flags & MORTISE_SIMPLE_OPTIMIZER)
    simple_ = plugins.object<mortise_optimizer_simple>(kOptimizer, member);
  else device_ = plugins.object<mortise_optimizer>(kOptimizer, member);
  for (mortise_param* p : params)
    if (p->info.trainable) slots_.push_back({p, specs_of(*p), nullptr, {}, {}});
}

std::vector<Optimizer::Spec> Optimizer::specs_of(const mortise_param& p) const {
  // A plugin that writes a few too many is refused below; it does not write over the host's stack.
  std::vector<mortise_state_spec> specs(8 * MORTISE_MAX_STATES);
  uint32_t n = simple_ ? simple_.object->n_states : 0;
  const auto refuse = [&](const std::string& what) {
    throw PluginError(MORTISE_E_PLUGIN, by_->id() + " has " + what + " for " + p.name, by_->id());
  };
  if (device_) device_.call(&mortise_optimizer::states, "states of " + p.name, &p.info, specs.data(), &n);
  if (n > MORTISE_MAX_STATES)
    refuse(std::to_string(n) + " states, more than the " + std::to_string(MORTISE_MAX_STATES) + " that there may be,");
  if (simple_ && n > 0 && !simple_.object->states) refuse("states without names");
  for (uint32_t i = 0; simple_ && i < n; ++i)
    specs[i] = {simple_.object->states[i], str("same"), p.info.master_dtype, 0, 0.0};
  std::vector<Spec> all;
  for (uint32_t i = 0; i < n; ++i) {
    const std::string name(text_of(specs[i].name, by_->id()));
    if (name.empty()) refuse("a state without a name");
    if (std::ranges::find(all, name, &Spec::name) != all.end()) refuse("two states called `" + name + "`");
    if (scalar_type(specs[i].dtype) == at::ScalarType::Undefined)
      refuse("the state `" + name + "` of dtype " + std::to_string(specs[i].dtype) + ", which there is not,");
    all.push_back(
        {name, state_sizes(p, text_of(specs[i].relation, by_->id()), by_->id()), specs[i].dtype, specs[i].fill});
  }
  return all;
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& slot : slots_)
    for (const auto& s : slot.specs) {
      int64_t n = dtype_bytes(s.dtype);
      for (const int64_t d : s.sizes) n *= d;
      bytes += n;
    }
  return bytes;
}

void Optimizer::allocate(Host& host) {
  for (auto& slot : slots_) {
    slot.parameter = &host.parameters().state(*slot.declared);
    for (const auto& s : slot.specs)
      slot.states.push_back(
          at::full(s.sizes, s.fill, at::TensorOptions().dtype(scalar_type(s.dtype)).device(host.device())));
    for (auto& t : slot.states) slot.handles.push_back(borrow(t));
  }
}

std::vector<StoredTensor> Optimizer::states() const {
  std::vector<StoredTensor> all;
  for (const auto& slot : slots_)
    for (size_t i = 0; i < slot.states.size(); ++i)
      all.push_back({slot.declared->name + "/" + slot.specs[i].name, slot.states[i], {}, {}});
  return all;
}

void Optimizer::step(const Ledger& ledger, int64_t applied) {
  if (slots_.empty()) return;
  simple_ ? step_simple(ledger, applied) : step_device(ledger);
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
  device_.call(&mortise_optimizer::step, "step", slices_.data(), static_cast<uint32_t>(slices_.size()), &ledger.c());
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
    std::vector<mortise_list> states(simple_.object->n_states);
    std::vector<mortise_list*> state_handles;
    for (Slot* s : members) {
      params.tensors.push_back(s->parameter->master);
      grads.tensors.push_back(s->parameter->grad);
      for (size_t i = 0; i < states.size(); ++i) states[i].tensors.push_back(s->states[i]);
    }
    for (auto& l : states) state_handles.push_back(&l);
    mortise_optimizer_group g{};
    g.struct_size = sizeof g;
    g.n_states = simple_.object->n_states;
    g.lr = lr.const_data_ptr<double>()[group];
    g.weight_decay = decay.const_data_ptr<double>()[group];
    g.grad_multiplier = ledger.multiplier.item<double>();
    g.applied = applied;
    g.params = &params;
    g.grads = &grads;
    g.state = state_handles.data();
    simple_.call(&mortise_optimizer_simple::step, "step", static_cast<const mortise_optimizer_group*>(&g));
  }
}

}  // namespace mortise
