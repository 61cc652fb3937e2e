#include "core/loop/reports.hpp"

#include <ATen/ops/stack.h>

namespace mortise {

void Reports::push(StepReport begun, const StepScalars& scalars) {
  std::vector<at::Tensor> all = {scalars.verdict, scalars.loss, scalars.norm, scalars.lr};
  for (const auto& [name, value] : scalars.metrics) {
    begun.metrics.emplace_back(name, 0.0);
    all.push_back(value);
  }
  pending_.push_back({std::move(begun), at::stack(all)});
}

std::optional<StepReport> Reports::take(bool now) {
  if (pending_.empty() || (!now && under_way() <= depth_)) return std::nullopt;
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  const at::Tensor host = first.packed.cpu();
  const auto* values = host.const_data_ptr<double>();
  StepReport r = std::move(first.report);
  r.applied = values[0] != 0;
  r.loss = values[1];
  r.norm = values[2];
  r.lr = values[3];
  for (size_t i = 0; i < r.metrics.size(); ++i) r.metrics[i].second = values[4 + i];
  return r;
}

}  // namespace mortise
