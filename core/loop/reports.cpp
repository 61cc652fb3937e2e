#include "core/loop/reports.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace mortise {
namespace {

c10::Event mark(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // it takes the time
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

void Reports::begin(c10::Device device) {
  if (!device.is_cpu()) begins_ = mark(device);
}

void Reports::wait(c10::Device device, const std::function<void()>& body) {
  if (!takes_waits_) return body();
  takes_waits_ = false;
  struct Again {  // also after a rank that was lost
    bool& takes;
    ~Again() { takes = true; }
  } const again{takes_waits_};
  const auto before = std::chrono::steady_clock::now();
  std::optional<c10::Event> begins;
  if (!device.is_cpu()) begins = mark(device);
  body();
  if (begins) waits_.emplace_back(*std::move(begins), mark(device));
  else waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

void Reports::push(StepReport begun, const StepScalars& scalars) {
  const at::Tensor& verdict = scalars.verdict;
  std::vector<at::Tensor> all = {scalars.verdict, scalars.loss, scalars.norm, scalars.lr};
  for (const auto& [name, unit, number] : scalars.metrics) {
    begun.metrics.push_back({name, unit, 0});
    all.push_back(number.to(verdict.options()).view(at::IntArrayRef{}));
  }
  Pending& pending = pending_.emplace_back(std::move(begun), at::stack(all));
  pending.begins = std::exchange(begins_, std::nullopt);
  pending.waits = std::exchange(waits_, {});
  pending.report.waited_s = std::exchange(waited_s_, 0);
  pending.follows = !std::exchange(is_paused_, false);
  const c10::Device device = pending.packed.device();
  if (device.is_cpu()) return;
  const at::Tensor host = at::empty_like(pending.packed, at::TensorOptions().device(at::kCPU).pinned_memory(true));
  pending.packed = host.copy_(pending.packed, /*non_blocking=*/true);
  pending.arrives = mark(device);
}

std::optional<StepReport> Reports::take(bool now, const std::function<void()>& arrived) {
  if (pending_.empty() || (!now && under_way() <= depth_)) return std::nullopt;
  using Clock = std::chrono::steady_clock;
  Clock::duration took{};
  // Before it is taken out: of a device that is lost nothing is given back, not even pinned memory while this unwinds.
  if (const auto& arrives = pending_.front().arrives) {
    arrives->synchronize();
    if (arrived) arrived();
    if (last_)
      took = std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double, std::milli>(last_->elapsedTime(*arrives)));
  }
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  const auto* values = first.packed.const_data_ptr<double>();
  StepReport r = first.report;
  if (first.begins) {
    r.idle_s = last_ && first.follows ? last_->elapsedTime(*first.begins) / 1e3 : 0;
    r.waited_s = std::min(r.waited_s, *r.idle_s);
    for (const auto& [begins, ends] : first.waits) r.waited_s += begins.elapsedTime(ends) / 1e3;
  }
  r.applied = values[0] != 0;
  r.loss = values[1];
  r.norm = values[2];
  r.lr = values[3];
  for (size_t i = 0; i < r.metrics.size(); ++i) r.metrics[i].number = values[4 + i];
  const Clock::time_point read = Clock::now();
  r.ended = last_ ? last_ended_ + took : read;
  if (first.arrives) {
    if (pending_.empty()) r.late = r.ended - read;
    last_ = std::move(first.arrives);
    last_ended_ = r.ended - r.late;
  }
  return r;
}

}  // namespace mortise
