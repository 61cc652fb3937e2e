#include "core/loop/passes.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"

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

void add_counts(Counts& counts, const mortise_batch& batch) {
  for (const auto& [unit, n] : batch.counts) counts[unit] += n;
}

void TermSums::add(const Terms& terms) {
  for (const auto& t : terms) {
    const at::Tensor sum = t.sum.detach().to(at::kDouble).reshape(at::IntArrayRef());
    const auto known = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) { return s.name == t.name; });
    if (known != sums_.end()) known->total.add_(sum);
    else sums_.push_back({t.name, t.unit, t.weight, sum.clone()});
  }
}

double TermSums::loss(const Counts& counts) const {
  double loss = 0;
  for (const auto& s : sums_) {
    const auto n = counts.find(s.unit);
    if (s.weight != 0 && n != counts.end() && n->second > 0)
      loss += s.weight * s.total.item<double>() / static_cast<double>(n->second);
  }
  return loss;
}

Passes::Passes(Host& host, Chains& chains, Feed* feed) : host_(host), chains_(chains), feed_(feed) {
  chains.core(kLoad, [this](mortise_call& call) {
    call.results[0] = {MORTISE_BATCH, 0, {.b = feed_->load(view(call.args[0].v.s), call.args[1].v.i)}};
  });
  chains.core(kForward, [this](mortise_call& call) { run_segments(call); });
  chains.core(kMicro, [this](mortise_call& call) { run_micro(call); });
  chains.core(kBackward, [this](mortise_call& call) {
    std::vector<at::Tensor> roots, seeds;
    for (const auto& t : terms_) {
      const auto n = counts_->find(t.unit);
      if (n == counts_->end())
        throw PluginError(MORTISE_E_PLUGIN,
                          "the term `" + t.name + "` counts `" + t.unit + "`, which the data does not");
      if (t.weight == 0 || !t.sum.requires_grad()) continue;
      const double factor = n->second > 0 ? t.weight / static_cast<double>(n->second) : 0.0;
      roots.push_back(t.sum);
      seeds.push_back(scale_->mul(factor).to(t.sum.scalar_type()).view(t.sum.sizes()));
    }
    if (roots.empty())
      throw PluginError(MORTISE_E_PLUGIN, "the model gave no term of a loss that depends on a trainable parameter");
    (void)call;
    run_backward(host_, roots, seeds);
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

BatchPtr Passes::host_batch(std::string_view split, int64_t index, uint32_t mode) {
  return batch_of(kLoad, mode, {{MORTISE_TEXT, 0, {.s = str(split)}}, {MORTISE_INT, 0, {.i = index}}});
}

BatchPtr Passes::device_batch(const BatchPtr& host, uint32_t mode) {
  return batch_of(kBatch, mode, {{MORTISE_BATCH, 0, {.b = host.get()}}});
}

void Passes::run_segments(mortise_call& call) {
  const size_t n = host_.declaration().segments.size();
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
    values[i % 2].clear();
  }
  SegmentValues& last = values[n % 2];
  for (uint32_t r = 0; r < call.n_results && r < kMaxSegmentResults; ++r) std::swap(call.results[r], last.v[r]);
}

void Passes::run_micro(mortise_call& call) {
  Parameters& parameters = host_.parameters();
  parameters.begin_micro(call.micro, (call.flags & MORTISE_LAST_MICRO) != 0);
  terms_.clear();
  Frame frame = *current_frame();
  frame.micro = &terms_;
  {
    at::AutoGradMode grad(true);
    mortise_call forward = make_call(&frame, kForward, {"", 0});
    forward.mode = call.mode;
    forward.flags = call.flags;
    forward.batch = call.batch;
    invoke(chains_.at(kForward, call.mode), forward, frame);
  }
  parameters.check_versions();
  mortise_call backward = make_call(&frame, kBackward, {"", 0});
  invoke(chains_.at(kBackward, call.mode), backward, frame);
}

void Passes::micro(mortise_batch* batch, int32_t micro, bool last, const Counts& counts, const at::Tensor& scale,
                   TermSums& sums) {
  counts_ = &counts;
  scale_ = &scale;
  mortise_call call =
      root_call(kMicro, MORTISE_TRAIN, uint32_t{MORTISE_GRAD} | (last ? uint32_t{MORTISE_LAST_MICRO} : 0u));
  call.micro = micro;
  call.batch = batch;
  invoke(chains_.at(kMicro, MORTISE_TRAIN), call);
  sums.add(terms_);
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
  frame.micro = terms ? terms : &ignored;
  invoke(chains_.at(kForward, mode), call, frame);
}

}  // namespace mortise
