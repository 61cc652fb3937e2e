#include "core/loop/update.hpp"

#include <ATen/ops/full.h>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {
namespace {

std::vector<int64_t> state_sizes(const mortise_param& p, std::string_view relation) {
  if (relation == "same") return p.sizes;
  if (relation == "scalar") return {};
  std::vector<int64_t> sizes = p.sizes;
  if (relation == "rows" && !sizes.empty()) sizes.pop_back();
  else if (relation == "columns" && sizes.size() > 1) sizes.erase(sizes.end() - 2);
  else
    throw PluginError(MORTISE_E_ARGUMENT, "a state of " + p.name + " has the relation `" + std::string(relation) +
                                              "`; relations are same, rows, columns, scalar");
  return sizes;
}

}  // namespace

Optimizer::Optimizer(Plugins& plugins, int member, const std::vector<mortise_param*>& params)
    : by_(&plugins.start(member)), object_(plugins.object<mortise_optimizer>(kOptimizer, member)), params_(params) {
  for (mortise_param* p : params)
    if (p->info.trainable) slots_.push_back({p, specs_of(*p), nullptr, {}, {}});
}

std::vector<Optimizer::Spec> Optimizer::specs_of(const mortise_param& p) const {
  mortise_state_spec specs[MORTISE_MAX_STATES] = {};
  uint32_t n = 0;
  object_.call(&mortise_optimizer::states, "states of " + p.name, &p.info, static_cast<mortise_state_spec*>(specs), &n);
  std::vector<Spec> all;
  for (uint32_t i = 0; i < n && i < MORTISE_MAX_STATES; ++i)
    all.push_back(
        {std::string(view(specs[i].name)), state_sizes(p, view(specs[i].relation)), specs[i].dtype, specs[i].fill});
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
  object_.call(&mortise_optimizer::step, "step", slices_.data(), static_cast<uint32_t>(slices_.size()), &ledger.c());
}

}  // namespace mortise
