#include "core/loop/step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Opens a filter for the listeners of one event.
class FilterScope {
 public:
  FilterScope(Services& s, Filter f) : services_(s) { services_.filter = f; }
  ~FilterScope() { services_.filter = Filter::kNone; }
  FilterScope(const FilterScope&) = delete;
  FilterScope& operator=(const FilterScope&) = delete;

 private:
  Services& services_;
};

}  // namespace

Step::Step(Host& host, Chains& chains, Passes& passes, Feed& feed, Services& services, Ledger& ledger,
           std::deque<Optimizer>& optimizers, Provided<mortise_comm> comm, Provided<mortise_replicas> replicas)
    : host_(host), chains_(chains), passes_(passes), feed_(feed), services_(services), ledger_(ledger),
      optimizers_(optimizers), comm_(comm), replicas_(replicas), written_(host.declaration().params.size(), false) {
  for (const auto& o : optimizers)
    if (o.writes_value())
      for (const mortise_param* p : o.params()) written_[p->index] = true;
  host.norm_of_step = [this] { return norm(); };
  host.parameters().on_ready([this](mortise_param& p, int micro, bool last) {
    replicas_.call(&mortise_replicas::ready, "ready", &p, int32_t{micro}, int32_t{last});
  });
  chains.core(kStep, [this](mortise_call&) {
    mortise_call call = root_call(kGradients, MORTISE_TRAIN, MORTISE_GRAD);
    invoke(chains_.at(kGradients, MORTISE_TRAIN), call);
    update();
  });
  chains.core(kGradients, [this](mortise_call&) { gradients(); });
}

int32_t Step::window() {
  services_.window = 1;
  FilterScope filter(services_, Filter::kWindow);
  chains_.notify(kStepWindow, {});
  return services_.window;
}

// Counts are known before the first forward, so all host batches of the window exist before it. An epoch's last window
// may be short: its denominators say so, and nothing is made up to fill it.
void Step::load_window() {
  const int64_t per_epoch = feed_.micros_per_epoch("train");
  const int64_t micros = std::min<int64_t>(window(), per_epoch - cursor_ % per_epoch);
  counts_.clear();
  batches_.clear();
  const double before = now();
  for (int64_t m = 0; m < micros; ++m) {
    batches_.push_back(passes_.host_batch("train", cursor_ + m, MORTISE_TRAIN));
    add_counts(counts_, *batches_.back().get());
  }
  data_wait_s_ = now() - before;
  std::vector<int64_t> numbers;
  for (const auto& [unit, n] : counts_) numbers.push_back(n);
  comm_.call(&mortise_comm::host_all_reduce, "host_all_reduce", numbers.data(), static_cast<uint32_t>(numbers.size()),
             uint32_t{MORTISE_SUM});
  size_t i = 0;
  for (auto& [unit, n] : counts_) n = numbers[i++];
  services_.clock.micros = static_cast<int32_t>(micros);
  services_.clock.epoch = cursor_ / per_epoch;
  cursor_ += micros;
}

StepReport Step::run() {
  at::NoGradGuard no_grad;
  host_.step = services_.clock.attempted;
  chains_.notify(kStepBegin, {});
  load_window();
  host_.parameters().begin_step();
  sums_.clear();
  norm_ = at::Tensor();
  ledger_.refill(services_.clock.attempted, services_.clock.applied);
  mortise_call call = root_call(kStep, MORTISE_TRAIN, MORTISE_GRAD);
  invoke(chains_.at(kStep, MORTISE_TRAIN), call);
  ++services_.clock.attempted;
  chains_.notify(kStepEnd, {});
  return report();
}

void Step::gradients() {
  for (size_t m = 0; m < batches_.size(); ++m) {
    const BatchPtr batch = passes_.device_batch(batches_[m], MORTISE_TRAIN);
    passes_.micro(batch.get(), static_cast<int32_t>(m), m + 1 == batches_.size(), counts_, ledger_.scale, sums_);
  }
  replicas_.call(&mortise_replicas::finish, "finish", uint32_t{0});
}

void Step::update() {
  ledger_.begin_update();
  {
    FilterScope filter(services_, Filter::kVerdict);
    chains_.notify(kStepVerdict, {});
  }
  {
    FilterScope filter(services_, Filter::kTransform);
    chains_.notify(kGradTransform, {});
  }
  for (auto& o : optimizers_) o.step(ledger_);
  host_.parameters().publish(written_);
  chains_.notify(kStepCommit, {});
  ledger_.commit();
}

// Sums of squares of owned elements over all ranks; one rank owns all of them.
const at::Tensor& Step::norm() {
  if (!norm_.defined()) norm_ = host_.parameters().norm().div(ledger_.scale);
  return norm_;
}

std::string Step::first_nonfinite() {
  for (const auto& s : host_.parameters().all())
    if (s.has_gradient && !at::all(at::isfinite(s.grad)).item<bool>()) return s.declared->name;
  return "";
}

StepReport Step::report() {
  StepReport r;
  r.applied = ledger_.verdict.item<double>() != 0;
  r.loss = sums_.loss(counts_);
  r.norm = norm().item<double>();
  r.lr = ledger_.lr.numel() ? ledger_.lr.max().item<double>() : 0;
  r.data_wait_s = data_wait_s_;
  r.samples = counts_["samples"];
  r.tokens = counts_.count("tokens") ? counts_["tokens"] : 0;
  if (!r.applied) r.skipped_parameter = first_nonfinite();
  for (const auto& s : sums_.all())
    if (s.weight == 0 && counts_[s.unit] > 0)
      r.metrics.emplace_back(s.name, s.total.item<double>() / static_cast<double>(counts_[s.unit]));
  services_.clock.applied += r.applied;
  services_.clock.samples += r.samples;
  services_.clock.tokens += r.tokens;
  return r;
}

}  // namespace mortise
