#include "core/loop/update.hpp"

namespace mortise {

void Optimizer::update(const std::vector<mortise_slice>& slices, const mortise_ledger& ledger) const {
  declared_.object.call(&mortise_optimizer::step, "step", slices.data(), static_cast<uint32_t>(slices.size()), &ledger);
}

void Optimizer::step(const Ledger& ledger) {
  if (declared_.states.empty()) return;
  std::vector<mortise_slice> here, of_host;
  for (const mortise_slice& slice : states_.slices(States::Which::kWhereGradients))
    (slice.param->is_updated_on_host() ? of_host : here).push_back(slice);
  if (!here.empty() || of_host.empty()) update(here, ledger.c());
  if (of_host.empty()) return;
  on_host_.run(of_host, declared_.writes_value(), ledger,
               [this](const auto& slices, const mortise_ledger& numbers) { update(slices, numbers); });
  states_.let_go();
}

}  // namespace mortise
