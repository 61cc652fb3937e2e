#include "core/loop/ledger.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {

Ledger::Ledger(c10::Device device, const std::vector<Group>& groups, Provided<mortise_schedule> schedule,
               Horizon horizon)
    : groups_(groups), schedule_(schedule), horizon_(horizon) {
  const auto f64 = at::TensorOptions().dtype(at::kDouble).device(device),
             i64 = at::TensorOptions().dtype(at::kLong).device(device);
  const auto n = static_cast<int64_t>(groups.size());
  scale = at::ones({}, f64);
  multiplier = at::ones({}, f64);
  verdict = at::ones({}, f64);
  applied = at::zeros({}, i64);
  attempted = at::zeros({}, i64);
  base_ = at::zeros({}, i64);
  lr = at::zeros({n}, f64);
  table_ = at::zeros({kRows, n}, f64);
  at::Tensor decay = at::empty({n}, at::kDouble);
  for (int64_t g = 0; g < n; ++g) decay.mutable_data_ptr<double>()[g] = groups[static_cast<size_t>(g)].weight_decay;
  weight_decay = decay.to(device);
  c_ = {sizeof c_,  static_cast<uint32_t>(n), borrow(scale),    borrow(multiplier), borrow(verdict), borrow(applied),
        borrow(lr), borrow(weight_decay),     borrow(attempted)};
}

double Ledger::rate(int64_t a) const {
  if (a < horizon_.warmup) return static_cast<double>(a + 1) / static_cast<double>(horizon_.warmup);
  const auto rest = static_cast<double>(std::max<int64_t>(horizon_.over - horizon_.warmup, 1));
  double factor = std::numeric_limits<double>::quiet_NaN();  // refused below if nobody writes it
  const double progress = std::min(static_cast<double>(a - horizon_.warmup) / rest, 1.0);
  schedule_.call(&mortise_schedule::factor, "factor", progress, &factor);
  if (factor >= 0 && factor <= 1) return factor;
  throw PluginError(MORTISE_E_PLUGIN,
                    schedule_.by->id() + " gave the factor " + std::to_string(factor) + " at " +
                        std::to_string(progress) + "; a factor is 0 to 1 of the peak",
                    schedule_.by->id());
}

void Ledger::begin_step(int64_t steps, int64_t known) {
  attempted.fill_(steps);
  refill(steps, known);
}

void Ledger::refill(int64_t steps, int64_t known) {
  if (filled_at_ >= 0 && steps - filled_at_ < kRows / 2) return;
  // Rates are tabulated ahead, and again after a resume: one that remembers its calls would be another schedule then.
  if (const int64_t middle = (horizon_.warmup + std::max(horizon_.over, horizon_.warmup)) / 2; filled_at_ < 0)
    if (const double first = rate(middle), again = rate(middle); first != again)
      throw PluginError(MORTISE_E_PLUGIN,
                        schedule_.by->id() + " gave " + std::to_string(first) + " and then " + std::to_string(again) +
                            " for the same progress; a factor hangs on the progress alone",
                        schedule_.by->id());
  const auto n = static_cast<int64_t>(groups_.size());
  // For a device in memory that it reads by itself, so that nobody waits; LibTorch keeps it until the copy is over.
  at::Tensor rows = at::empty({kRows, n}, at::TensorOptions(at::kDouble).pinned_memory(!table_.is_cpu()));
  for (int64_t r = 0; r < kRows; ++r) {
    const double factor = rate(known + r);
    for (int64_t g = 0; g < n; ++g)
      rows.mutable_data_ptr<double>()[r * n + g] = groups_[static_cast<size_t>(g)].lr * factor;
  }
  table_.copy_(rows, /*non_blocking=*/true);
  base_.fill_(known);
  filled_at_ = steps;
}

void Ledger::restore(int64_t applied_steps, double factor) {
  applied.fill_(applied_steps);
  scale.fill_(factor);
  filled_at_ = -1;
}

void Ledger::begin_update(const at::Tensor& learns) {
  at::Tensor row = lr.view({1, -1});
  at::index_select_out(row, table_, 0, applied.sub(base_).view({1}));
  at::reciprocal_out(multiplier, scale);
  verdict.copy_(learns);
}

// 1 or 0, whatever the number, or the LOGICAL that isfinite gives: the verdict is added to the steps, and multiplies
// what filters give.
void Ledger::vote(const at::Tensor& ok) { verdict.mul_(ok.to(at::kDouble).abs().gt(0)); }
void Ledger::multiply(const at::Tensor& factor) { multiplier.mul_(factor); }
void Ledger::commit() { applied.add_(verdict.to(at::kLong)); }

}  // namespace mortise
