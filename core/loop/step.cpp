#include "core/loop/step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "mortise/dtype.h"

namespace mortise {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Step::Step(const Parts& parts)
    : p_(parts), services_(parts.host.services), ranks_(services_),
      written_(parts.host.declaration().params.size(), false), denominators_(parts.host.device()),
      reports_(parts.report_depth) {
  for (const auto& o : p_.optimizers)
    if (o.writes_value())
      for (const mortise_param* p : o.params()) written_[p->index] = p->is_sharded() || !o.is_cut();
  if (!ranks_.alone() && !services_.records_steps)  // what was marked while it was recorded has no time
    services_.timed_wait = [this](bool on_host, const std::function<void()>& body) {
      reports_.wait(on_host ? c10::Device(c10::kCPU) : p_.host.device(), body);
    };
  p_.chains.provide(kStep, [this](mortise_call& step) {
    if (has_gradients_)
      throw PluginError(MORTISE_E_ARGUMENT, "a wrapper of `step` called `next` twice: it would be two steps");
    gradients_run_ = 0;
    mortise_call call = root_call(kGradients, MORTISE_TRAIN, MORTISE_GRAD);
    set_values(call, step.args, step.n_args, nullptr, 0);
    invoke(p_.chains.at(kGradients, MORTISE_TRAIN), call);
    if (gradients_run_ == 0) refuse_skipped(p_.chains, kGradients, MORTISE_TRAIN);
    update();
  });
  p_.chains.provide(kGradients, [this](mortise_call& call) { gradients(call); });
}

// An epoch's last window may be short: its denominators say so, and nothing is made up to fill it.
int64_t Step::window() {
  services_.window = 1;
  p_.listeners.filter(services_, Filter::kWindow, kStepWindow);
  const int64_t per_epoch = p_.samples.micros_per_epoch("train");
  return std::min<int64_t>(services_.window, per_epoch - cursor_ % per_epoch);
}

// Counts are known before the first forward, so all batches of the window exist before it, and on the device: what runs
// inside `step` finds everything where it was in the step before.
void Step::load_window() {
  const int64_t micros = window();
  const double before = now();
  std::vector<BatchPtr> loaded;
  Counts counts;
  for (int64_t m = 0; m < micros; ++m) {
    loaded.push_back(p_.passes.host_batch("train", cursor_ + m, MORTISE_TRAIN));
    add_counts(counts, *loaded.back().get());
  }
  begun_ = {};
  begun_.data_wait_s = now() - before;
  ranks_.sum(counts, ranks_.alone() ? "" : names_ + ", in " + std::to_string(micros) + " micro-batches of");
  reports_.begin(p_.host.device());
  denominators_.set(counts);
  batches_.clear();
  for (const BatchPtr& batch : loaded) batches_.push_back(p_.passes.device_batch(batch, MORTISE_TRAIN));

  begun_.attempted = services_.clock.attempted;
  begun_.micros = static_cast<int32_t>(micros);
  begun_.epoch = cursor_ / p_.samples.micros_per_epoch("train");
  begun_.samples = counts["samples"];
  begun_.tokens = counts["tokens"];
  cursor_ += micros;
  begun_.cursor = cursor_;
  services_.clock.micros = begun_.micros;
  services_.clock.epoch = begun_.epoch;
}

void Step::run() {
  at::NoGradGuard no_grad;
  is_updated_ = has_gradients_ = false;
  reported_.clear();
  is_under_way_ = true;
  reports_.start();
  services_.clock.epoch = cursor_ / p_.samples.micros_per_epoch("train");  // as an unbroken run has it here
  p_.listeners.notify(kStepBegin, {});
  load_window();
  p_.host.parameters().begin_step();
  sums_.restart();
  norm_ = at::Tensor();
  p_.ledger.begin_step(services_.clock.attempted, services_.clock.applied);
  mortise_call call = root_call(kStep, MORTISE_TRAIN, MORTISE_GRAD);
  std::vector<mortise_value> batches;
  for (const BatchPtr& batch : batches_) batches.push_back({MORTISE_BATCH, 0, {.b = batch.get()}});
  set_values(call, batches.data(), static_cast<uint32_t>(batches.size()), nullptr, 0);
  forget_gathered();
  p_.host.checks_dtypes = !dtypes_are_checked_;
  n_reported_before_ = std::ssize(reported_);
  invoke(p_.chains.at(kStep, MORTISE_TRAIN), call);
  if (!has_gradients_) refuse_skipped(p_.chains, kStep, MORTISE_TRAIN);
  if (!std::exchange(dtypes_are_checked_, true)) check_tensors("after the first step");
  p_.host.checks_dtypes = false;
  ++services_.clock.attempted;
  p_.listeners.notify(kStepEnd, {});
  if (begun_.attempted == 0)
    for (const auto& s : p_.host.parameters().all())
      if (s.declared->info.trainable && !s.has_gradient) begun_.without_gradient.push_back(s.declared->name);
  begun_.is_counted = sums_.is_counted(denominators_);
  is_under_way_ = false;
  reports_.push(begun_, scalars());
}

// Of the batches that arrive here: a wrapper may have put others into their place.
void Step::gradients(const mortise_call& call) {
  if (++gradients_run_ > 1)
    throw PluginError(MORTISE_E_ARGUMENT,
                      "a wrapper of `gradients` called `next` twice: each micro-batch would count twice");
  if (call.n_args != batches_.size())
    throw PluginError(MORTISE_E_ARGUMENT, "`gradients` is called with " + std::to_string(call.n_args) +
                                              " batches; this step has " + std::to_string(batches_.size()));
  for (uint32_t m = 0; m < call.n_args; ++m) {
    if (call.args[m].tag != MORTISE_BATCH || !call.args[m].v.b)
      throw PluginError(MORTISE_E_ARGUMENT, "argument " + std::to_string(m) + " of `gradients` is no batch");
    p_.passes.micro(call.args[m].v.b, static_cast<int32_t>(m), m + 1 == call.n_args, denominators_, p_.ledger.scale,
                    sums_);
  }
  services_.wait(false, [this] { p_.replicas.call(&mortise_replicas::finish, "finish", uint32_t{0}); });
}

void Step::update() {
  has_gradients_ = true;
  norm();  // of the gradients as they came; an optimizer may use their memory
  p_.ledger.begin_update(sums_.counted(denominators_));
  p_.listeners.filter(services_, Filter::kVerdict, kStepVerdict);
  ranks_.sum({p_.ledger.verdict}, MORTISE_MIN);  // one vote to skip is enough, on any rank
  p_.listeners.filter(services_, Filter::kTransform, kGradTransform);
  is_updated_ = true;
  for (auto& o : p_.optimizers) o.step(p_.ledger);
  if (std::ranges::any_of(p_.optimizers, &Optimizer::is_cut)) {
    services_.wait(false, [this] { p_.replicas.call(&mortise_replicas::gather, "gather", uint32_t{0}); });
    p_.host.parameters().masters_arrived();
  }
  p_.host.parameters().publish(written_);
  p_.listeners.filter(services_, Filter::kScale, kStepCommit);
  p_.ledger.commit();
}

// Plugins reach every tensor, and LibTorch lets them change its type and its shape. No run could go on from a
// checkpoint of them.
void Step::check_tensors(const std::string& when) const {
  const auto check = [&](const at::Tensor& t, uint32_t planned, const std::string& what) {
    if (!t.defined() || t.scalar_type() == scalar_type(planned)) return;
    throw PluginError(MORTISE_E_PLUGIN, what + " is in " + mortise_dtype_of(dtype_of(t.scalar_type()))->name + " " +
                                            when + "; the plan has it in " + mortise_dtype_of(planned)->name);
  };
  const auto check_shape = [&](const at::Tensor& t, at::IntArrayRef planned, const std::string& what) {
    if (t.sizes() != planned)
      throw PluginError(MORTISE_E_PLUGIN,
                        c10::str(what, " has the shape ", t.sizes(), " ", when, "; the plan has it in ", planned));
  };
  for (const ParameterState& s : p_.host.parameters().all()) {
    const mortise_param_info& info = s.declared->info;
    check(s.value, info.value_dtype, "parameter " + s.declared->name);
    check(s.master, info.master_dtype, "the master of " + s.declared->name);
    check(s.grad, info.grad_dtype, "the gradient of " + s.declared->name);
    if (!s.declared->is_sharded()) check_shape(s.master, s.declared->sizes, "the master of " + s.declared->name);
  }
  for (const Optimizer& o : p_.optimizers)
    for (const NamedState& s : o.states()) {
      check(s.tensor, s.dtype, "the state " + s.name + " of " + o.id());
      check_shape(s.tensor, s.sizes, "the state " + s.name + " of " + o.id());
    }
}

// With the squares of what ranks have in parts, each element once.
const at::Tensor& Step::norm() {
  if (!has_gradients_)
    throw PluginError(MORTISE_E_ARGUMENT, "the norm is that of a whole step: it is known in step.verdict and after");
  if (norm_.defined()) return norm_;
  norm_ = p_.host.parameters().norm();
  if (p_.replicas.has(&mortise_replicas::norm)) p_.replicas.call(&mortise_replicas::norm, "norm", borrow(norm_));
  squares_ = p_.host.parameters().squares_of_parts();
  if (squares_.defined()) {
    ranks_.sum({squares_});
    norm_ = norm_.square().add(squares_.sum()).sqrt();
  }
  norm_ = norm_.div(p_.ledger.scale);
  return norm_;
}

void Step::report(Reported<at::Tensor> number) {
  if (!is_under_way_) throw PluginError(MORTISE_E_ARGUMENT, "numbers of a step are reported inside it");
  if (std::ranges::find(reported_, number.name, &Reported<at::Tensor>::name) != reported_.end())
    throw PluginError(MORTISE_E_ARGUMENT, "this step has a number `" + number.name + "` already");
  reported_.push_back(std::move(number));
}

uint64_t Step::recorded() {
  if (!is_under_way_ || !has_gradients_)
    throw PluginError(MORTISE_E_ARGUMENT, "a step is recorded after `next` in a wrapper of `step`");
  p_.host.parameters().keep_gradients();
  Recording& r = recordings_.emplace_back(norm_, squares_, sums_.given());
  std::copy(reported_.begin() + n_reported_before_, reported_.end(), std::back_inserter(r.reported));
  for (const auto& s : p_.host.parameters().all()) {
    r.has_gradient.push_back(s.has_gradient);
    r.own_grads.push_back(s.own_grad);
  }
  return recordings_.size();
}

void Step::replayed(uint64_t token) {
  if (!is_under_way_ || has_gradients_)
    throw PluginError(MORTISE_E_ARGUMENT, "a recording is played in a wrapper of `step`, instead of `next`");
  if (token == 0 || token > recordings_.size())
    throw PluginError(MORTISE_E_ARGUMENT, "there is no recording " + std::to_string(token));
  const Recording& r = recordings_[token - 1];
  has_gradients_ = is_updated_ = true;
  norm_ = r.norm;
  squares_ = r.squares;
  sums_.set_given(r.given);
  std::ranges::copy(r.reported, std::back_inserter(reported_));
  size_t i = 0;
  for (auto& s : p_.host.parameters().all()) {
    s.has_gradient = r.has_gradient[i];
    s.own_grad = r.own_grads[i++];
  }
  forget_gathered();
}

// A recording gathers what it reads, whatever was gathered before it begins, by an evaluation; and what was gathered
// before is old when it was played.
void Step::forget_gathered() {
  if (!services_.records_steps) return;
  for (const auto& s : p_.host.parameters().all())
    if (s.declared->is_sharded()) p_.replicas.call(&mortise_replicas::written, "written", s.declared);
}

// By its norm, which may be infinite where no element is.
std::string Step::first_nonfinite() {
  int64_t part = 0;
  for (const auto& s : p_.host.parameters().all()) {
    const int64_t at = s.declared->is_in_parts() ? part++ : -1;
    if (!s.has_gradient) continue;
    const at::Tensor norm = at < 0 ? norm_of_gradients({s.grad}) : squares_[at];
    if (!std::isfinite(norm.item<double>())) return s.declared->name;
  }
  return "";
}

StepScalars Step::scalars() {
  StepScalars s;
  s.verdict = p_.ledger.verdict;
  names_ = ranks_.alone() ? "" : sums_.names();
  ranks_.sum_of_samples(sums_.totals());
  s.loss = sums_.loss(denominators_);
  s.norm = norm();
  s.lr = p_.ledger.lr.numel() ? p_.ledger.lr.max() : at::zeros({}, p_.ledger.verdict.options());
  for (auto& [name, number] : sums_.metrics(denominators_)) s.metrics.push_back({name, "", number});
  std::ranges::move(reported_, std::back_inserter(s.metrics));
  reported_.clear();
  return s;
}

std::optional<StepReport> Step::take_report(bool now) {
  std::optional<StepReport> r = reports_.take(now, [this] { services_.must_be_there(); });
  if (!r) return r;
  services_.clock.applied += r->applied;
  services_.clock.samples += r->samples;
  services_.clock.tokens += r->tokens;
  return r;
}

}  // namespace mortise
