#include "core/loop/passes.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <chrono>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/host/handle.hpp"
#include "mortise/dtype.h"

namespace mortise {
namespace {

constexpr uint32_t kMaxSegmentResults = 8;

// A segment's results, owned until the next segment has used them.
struct SegmentValues {
  mortise_value v[kMaxSegmentResults] = {};
  uint32_t n = 0;
  ~SegmentValues() { clear(); }
  SegmentValues() = default;
  SegmentValues(const SegmentValues&) = delete;
  SegmentValues& operator=(const SegmentValues&) = delete;
  void clear() {
    for (auto& x : v) {
      if (x.tag == MORTISE_TENSOR) take(x.v.t);
      x = {MORTISE_NONE, 0, {.i = 0}};
    }
    n = 0;
  }
  void count() {
    for (n = kMaxSegmentResults; n > 0 && v[n - 1].tag == MORTISE_NONE;) --n;
  }
};

}  // namespace

mortise_call root_call(Point point, uint32_t mode, uint32_t flags) {
  mortise_call call = make_call(nullptr, point, {"", 0});
  call.mode = mode;
  call.flags = flags;
  return call;
}

void refuse_skipped(const Chains& chains, Point point, uint32_t mode) {
  const mortise_next& outer = *chains.at(point, mode);
  std::vector<std::string> wrappers;
  for (const mortise_next* each = &outer; each; each = each->next)
    if (each->wrap && each->plugin) wrappers.push_back(each->plugin->id);
  throw PluginError(MORTISE_E_PLUGIN,
                    "the call of `" + outer.point + "` ended without having been made: a wrapper of it (" +
                        join(wrappers, " or ") + ") did not call `next`",
                    outer.plugin ? outer.plugin->id : "");
}

Passes::Passes(Host& host, Chains& chains, Feed& feed, Samples& samples)
    : host_(host), chains_(chains), feed_(feed), samples_(samples), ranks_(host.services) {
  chains.provide(kLoad, [this](mortise_call& call) {
    call.results[0] = {MORTISE_BATCH, 0, {.b = feed_.load(view(call.args[0].v.s), call.args[1].v.i)}};
  });
  chains.provide(kForward, [this](mortise_call& call) { run_segments(call); });
  chains.provide(kMicro, [this](mortise_call& call) { run_micro(call); });
  chains.provide(kBackward, [this](mortise_call&) {
    ++backwards_run_;
    run_backward_of_terms();
  });
  chains.provide(kEval, [this](mortise_call&) {
    if (measured_) measure(*measured_);
  });
}

BatchPtr Passes::batch_of(Point point, uint32_t mode, std::initializer_list<mortise_value> args) {
  mortise_call call = root_call(point, mode, 0);
  mortise_value result{};
  call.args = args.begin();
  call.n_args = static_cast<uint32_t>(args.size());
  call.results = &result;
  call.n_results = 1;
  invoke(chains_.at(point, mode), call);
  if (result.tag != MORTISE_BATCH || !result.v.b)
    throw PluginError(MORTISE_E_PLUGIN, "`" + host_.points()[point].name + "` gave no batch");
  return BatchPtr(result.v.b);
}

bool Passes::is_fill(const mortise_batch& batch) const {
  const std::pair<std::string, int64_t> none("samples", 0);
  return !ranks_.alone() && std::ranges::find(batch.counts, none) != batch.counts.end();
}

// What only fills the place of a micro-batch counts nothing, whatever wrappers of `load` have counted.
BatchPtr Passes::host_batch(std::string_view split, int64_t index, uint32_t mode) {
  BatchPtr batch = batch_of(kLoad, mode, {{MORTISE_TEXT, 0, {.s = str(split)}}, {MORTISE_INT, 0, {.i = index}}});
  if (!ranks_.alone() && samples_.micro(split, index).is_fill)
    for (auto& [unit, n] : batch.get()->counts) n = 0;
  return batch;
}

BatchPtr Passes::device_batch(const BatchPtr& host, uint32_t mode) {
  return batch_of(kBatch, mode, {{MORTISE_BATCH, 0, {.b = host.get()}}});
}

void Passes::forget_terms_of_segments(Terms& terms) {
  std::erase_if(terms, [](const Term& t) { return t.of_segments; });
}

// What `forward` computes in is said by whoever wraps it; the plan had it from their plugin.toml.
void Passes::check_compute_dtype(const mortise_call& call) const {
  if (!host_.checks_dtypes || call.mode != MORTISE_TRAIN || call.compute_dtype == host_.planned_compute_dtype) return;
  std::string by;
  for (const mortise_next* link = chains_.at(kForward, MORTISE_TRAIN); link; link = link->next)
    if (link->plugin) by = link->plugin->id;
  const auto name = [](uint32_t dtype) {
    return dtype == MORTISE_NO_DTYPE ? "that of the weights" : mortise_dtype_of(dtype)->name;
  };
  throw PluginError(MORTISE_E_PLUGIN,
                    std::string("`forward` computes in ") + name(call.compute_dtype) + ", as " +
                        (by.empty() ? "nobody" : by) + " has it; the plan has it in " +
                        name(host_.planned_compute_dtype) + ": [frame] compute_dtype of plugin.toml",
                    by);
}

void Passes::run_segments(mortise_call& call) {
  check_compute_dtype(call);
  ++forwards_run_;
  const size_t n = host_.declaration().segments.size();
  if (Terms* terms = current_frame()->terms) forget_terms_of_segments(*terms);
  SegmentValues values[2];
  for (size_t i = 0; i < n; ++i) {
    const SegmentValues& in = values[i % 2];
    SegmentValues& out = values[(i + 1) % 2];
    mortise_call segment = make_call(current_frame(), kBlock, str(host_.declaration().segments[i].path));
    segment.args = in.v;
    segment.n_args = in.n;
    segment.results = out.v;
    segment.n_results = kMaxSegmentResults;
    SegmentFrame here{static_cast<int>(i), {}};
    Frame frame = *current_frame();
    frame.segment = &here;
    invoke(chains_.segment(i, call.mode), segment, frame);
    out.count();
    if (out.n == 0 && i + 1 < n) {
      const mortise_next& outer = *chains_.segment(i, call.mode);
      throw PluginError(MORTISE_E_PLUGIN, describe(outer, segment) + " gave no result",
                        outer.plugin ? outer.plugin->id : "");
    }
    values[i % 2].clear();
  }
  SegmentValues& last = values[n % 2];
  for (uint32_t r = 0; r < call.n_results && r < kMaxSegmentResults; ++r) std::swap(call.results[r], last.v[r]);
}

void Passes::run_micro(mortise_call& call) {
  if (++micros_run_ > 1)
    throw PluginError(MORTISE_E_ARGUMENT, "a wrapper of `micro` called `next` twice: the gradient would count twice");
  Parameters& parameters = host_.parameters();
  parameters.begin_micro(call.micro, (call.flags & MORTISE_LAST_MICRO) != 0);
  terms_.clear();
  Frame frame = *current_frame();
  frame.terms = &terms_;
  {
    at::AutoGradMode grad(true);
    mortise_call forward = make_call(&frame, kForward, {"", 0});
    forward.mode = call.mode;
    forward.flags = call.flags;
    forward.batch = call.batch;
    run_forward(forward, frame);
  }
  parameters.check_versions();
  mortise_call backward = make_call(&frame, kBackward, {"", 0});
  backwards_run_ = 0;
  invoke(chains_.at(kBackward, call.mode), backward, frame);
  if (backwards_run_ == 0) refuse_skipped(chains_, kBackward, call.mode);
}

std::function<at::Tensor()> Passes::seed_of(const Term& t) const {
  return [scale = *scale_, denominator = denominators_->of(t.unit, t.name, t.by), weight = t.weight,
          dtype = t.sum.scalar_type(),
          sizes = t.sum.sizes().vec()] { return scale.mul(weight).div(denominator).to(dtype).view(sizes); };
}

at::Tensor Passes::attached(const at::Tensor& carrier, const Term& term) const {
  if (!denominators_) throw PluginError(MORTISE_E_ARGUMENT, "a term is attached inside a micro-batch of a step only");
  return with_root(carrier, term.sum, seed_of(term));
}

void Passes::run_backward_of_terms() {
  std::vector<at::Tensor> roots, seeds;
  for (const auto& t : terms_) {
    const auto seed = seed_of(t);
    if (t.weight == 0 || !t.sum.requires_grad()) continue;
    roots.push_back(t.sum);
    seeds.push_back(seed());
  }
  if (roots.empty()) {
    const mortise_next* model = chains_.segment(0, MORTISE_TRAIN);
    while (model->next) model = model->next;
    const std::string id = model->plugin ? model->plugin->id : "";
    throw PluginError(MORTISE_E_PLUGIN,
                      (id.empty() ? "the model" : id) +
                          " gave no term of a loss that depends on a trainable parameter"
                          "\n  fix: call loop.term(\"loss\", …) in its `forward`, with a weight above 0",
                      id);
  }
  run_backward(host_, roots, seeds);
}

void Passes::micro(mortise_batch* batch, int32_t micro, bool last, const Denominators& denominators,
                   const at::Tensor& scale, TermSums& sums) {
  denominators_ = &denominators;
  scale_ = &scale;
  const uint32_t flags = uint32_t{MORTISE_GRAD} | (last ? uint32_t{MORTISE_LAST_MICRO} : 0u);
  mortise_call call = root_call(kMicro, MORTISE_TRAIN, flags);
  call.micro = micro;
  call.batch = batch;
  micros_run_ = 0;
  const bool is_nothing = is_fill(*batch);
  const at::Tensor nothing = is_nothing ? at::zeros_like(scale) : at::Tensor();
  if (is_nothing) scale_ = &nothing;
  invoke(chains_.at(kMicro, MORTISE_TRAIN), call);
  if (micros_run_ == 0) refuse_skipped(chains_, kMicro, MORTISE_TRAIN);
  sums.add(terms_, is_nothing);
  terms_.clear();
}

void Passes::forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n,
                     Terms* terms) {
  at::NoGradGuard no_grad;
  mortise_call call = root_call(kForward, mode, 0);
  call.batch = batch;
  call.want = want;
  call.results = results;
  call.n_results = n;
  Terms ignored;
  Frame frame;
  frame.terms = terms ? terms : &ignored;
  run_forward(call, frame);
}

void Passes::run_forward(mortise_call& call, const Frame& frame) {
  const int64_t before = forwards_run_;
  invoke(chains_.at(kForward, call.mode), call, frame);
  if (forwards_run_ == before) refuse_skipped(chains_, kForward, call.mode);
}

Measured Passes::evaluate(const std::function<bool()>& give_up) {
  const auto before = std::chrono::steady_clock::now();
  Measured measured;
  measured_ = &measured;
  given_.clear();
  give_up_ = &give_up;
  mortise_call call = root_call(kEval, MORTISE_EVAL, 0);
  try {
    invoke(chains_.at(kEval, MORTISE_EVAL), call);
  } catch (...) {
    measured_ = nullptr;
    throw;
  }
  measured_ = nullptr;
  if (measured.complete && measured.values.empty()) refuse_skipped(chains_, kEval, MORTISE_EVAL);
  measured.values.insert(measured.values.end(), given_.begin(), given_.end());
  measured.about = samples_.about("validation");
  measured.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  return measured;
}

void Passes::metric(std::string_view name, double number) {
  if (!measured_) throw PluginError(MORTISE_E_ARGUMENT, "a metric is given inside `eval` only");
  const std::string column = "eval." + std::string(name);
  const auto has = [&](const auto& all) {
    return std::ranges::any_of(all, [&](auto& v) { return v.first == column; });
  };
  if (has(given_) || has(measured_->values))
    throw PluginError(MORTISE_E_ARGUMENT, "this evaluation has a number `" + column + "` already");
  given_.emplace_back(column, number);
}

void Passes::measure(Measured& measured) {
  Counts counts;
  TermSums sums;
  for (int64_t i = 0; i < samples_.micros_per_epoch("validation"); ++i) {
    if (*give_up_ && (*give_up_)()) {
      measured.complete = false;
      return;
    }
    const BatchPtr loaded = host_batch("validation", i, MORTISE_EVAL);
    add_counts(counts, *loaded.get());
    const BatchPtr batch = device_batch(loaded, MORTISE_EVAL);
    Terms terms;
    mortise_value results[2] = {};
    forward(batch.get(), MORTISE_EVAL, 0, results, 2, &terms);
    release_results(results, 2);
    sums.add(terms, is_fill(*batch.get()));
  }
  ranks_.sum(counts, sums.names());
  ranks_.sum_of_samples(sums.totals());
  Denominators denominators(host_.device());
  denominators.set(counts);
  measured.values = {{"eval.loss", sums.loss(denominators).item<double>()}};
  for (const auto& [name, value] : sums.metrics(denominators))
    measured.values.emplace_back("eval." + name, value.item<double>());
  host_.services.must_be_there();  // what is read would be of a sum that was given up
  measured.is_counted = sums.is_counted(denominators);
  measured.samples = counts["samples"];
  measured.tokens = counts["tokens"];
}

}  // namespace mortise
