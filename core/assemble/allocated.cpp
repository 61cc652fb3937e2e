#include "core/assemble/allocated.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <optional>

#include "core/assemble/links.hpp"
#include "core/base/dtype.hpp"
#include "core/base/progress.hpp"
#include "core/base/text.hpp"
#include "core/host/handle.hpp"
#include "core/plan/compute_dtype.hpp"

namespace mortise {
namespace {

constexpr int kReportDepth = 2;  // of a device that runs ahead of the host

// Converts and copies the weights' tensors, saying how far it is; false for a parameter that starts anew.
Parameters::Fill fill_from(const Weights& weights, ProgressLine& progress) {
  return [&](const mortise_param& p, at::Tensor& master) {
    const TensorView* t = weights.of(p);
    if (!t) return false;
    master.copy_(at::from_blob(const_cast<void*>(t->data), t->sizes, scalar_type(weight_type(t->dtype))));
    progress.add(t->bytes);
    return true;
  };
}

void allocate_parameters(Host& host, const Declared& d, bool initial) {
  Parameters::Fill fill;
  std::optional<ProgressLine> progress;
  if (!initial) fill = [](const mortise_param&, at::Tensor&) { return true; };
  if (initial && d.weights) {
    progress.emplace("loading " + byte_size(static_cast<int64_t>(d.weights->bytes())), d.weights->bytes());
    fill = fill_from(*d.weights, *progress);
  }
  host.parameters().allocate(host.declaration(), host.device(), host.seed(), fill);
}

FeedOptions feed_options(const Declared& d) {
  FeedOptions o;
  o.sequence_length = d.sequence_length;
  o.pad_to_multiple = d.key("data", "pad_to_multiple").as_int();
  o.truncate = d.key("data", "truncate").as_bool();
  const Value* threads = fact_of(*d.data.by->member->info, "data", "threads");
  o.one_thread = threads && threads->as_text() == "one";
  return o;
}

}  // namespace

Allocated allocate(Declared declared, bool initial) {
  at::GradMode::set_enabled(false);  // only a micro-batch's forward records
  Allocated a;
  a.declared = std::move(declared);
  const Declared& d = a.declared;
  diagnosed(*d.instances, [&] {
    allocate_parameters(a.host(), d, initial);
    a.chains = std::make_unique<Chains>();
    a.feed = std::make_unique<Feed>(d.data, *d.samples, feed_options(d));
    a.passes = std::make_unique<Passes>(a.host(), *a.chains, *a.feed, *d.samples);
    a.services = std::make_unique<RunServices>(a.host(), *a.passes);
    a.host().loop = a.services.get();
    a.services->allocate_kept();
    link_all(*a.chains, a.host(), d);
  });
  return a;
}

Runnable make_runnable(Allocated allocated) {
  Runnable r;
  r.allocated = std::move(allocated);
  const Declared& d = r.declared();
  Host& host = r.host();
  diagnosed(*d.instances, [&] {
    const Value &warmup = d.key("schedule", "warmup"), &over = d.key("schedule", "over");
    Horizon horizon;
    horizon.warmup = warmup.is_set() ? d.lengths.steps(warmup, "schedule.warmup") : 0;
    horizon.over = d.lengths.steps(over, "schedule.over");
    r.ledger = std::make_unique<Ledger>(host.device(), d.groups, d.schedule, horizon);
    r.optimizers = std::make_unique<std::deque<Optimizer>>();
    int64_t stored = 0;
    for (const auto& o : d.optimizers) stored += stored_of(o.states).bytes;
    if (stored > 0) r.store = std::make_unique<StateStore>(d.store, stored);
    for (const auto& o : d.optimizers) r.optimizers->emplace_back(o, host, r.store.get());
    r.step = std::make_unique<Step>(Step::Parts{host, *r.allocated.chains, *d.listeners, *r.allocated.passes,
                                                *d.samples, *r.ledger, *r.optimizers, d.replicas,
                                                host.device().is_cuda() ? kReportDepth : 0});
    r.allocated.services->train(*r.ledger, d.replicas, *r.step);
    if (d.replicas.has(&mortise_replicas::layout)) d.replicas.call(&mortise_replicas::layout, "layout", uint32_t{0});
    host.planned_compute_dtype = dtype_named(planned_compute_dtype(*d.plan, MORTISE_TRAIN));
    for (const Point point : {kStep, kGradients}) link_point(*r.allocated.chains, host, d, point);
  });
  return r;
}

}  // namespace mortise
