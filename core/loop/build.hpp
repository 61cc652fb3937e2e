// Putting a run together, in the one order that works: device, comm, tokenizer, data, model, filters, rules,
// optimizers.
#pragma once
#include <cmath>
#include <deque>
#include <optional>

#include "core/loop/chains.hpp"
#include "core/loop/feed.hpp"
#include "core/loop/format.hpp"
#include "core/loop/lengths.hpp"
#include "core/loop/run.hpp"
#include "core/loop/services.hpp"
#include "core/loop/step.hpp"
#include "core/loop/update.hpp"
#include "core/plugin/crash.hpp"

namespace mortise {

// What a run remembers besides its tensors and counts.
struct Progress {
  double first_loss = NAN;
  double best = NAN;  // of the metric that [checkpoint] best names
  int64_t best_step = -1;
};

// Everything that a run consists of, in the order in which it is made; destroyed backwards.
struct Run::Parts {
  RunRequest request;
  const Manifest& manifest;
  const Plan& plan;
  Host host;
  Services services;
  std::unique_ptr<Feed> feed;  // outlives the plugins: one may have threads that load
  std::unique_ptr<Passes> passes;
  std::optional<CallWatchdog> watchdog;  // over every call of the plugins, the last one too
  Plugins plugins;
  Chains chains;
  Provided<mortise_device> device;
  Provided<mortise_comm> comm;
  Provided<mortise_replicas> replicas;
  Provided<mortise_data> data;
  Provided<mortise_model> model;
  Provided<mortise_schedule> schedule;
  Provided<mortise_sampler> sampler;
  Format format;  // empty: nothing is saved
  std::vector<Group> groups;
  std::deque<Optimizer> optimizers;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<Step> step;
  Lengths lengths;
  Progress progress;
  Summary summary;

  explicit Parts(RunRequest r);
  void build();
  int train(const std::function<Interrupt()>& interrupt);
  Measured evaluate();
  void sample(const SampleRequest& request, const std::function<void(std::string_view)>& emit);
  std::function<void()> evaluation;  // what the point `eval` runs, while an evaluation is under way

 private:
  void open_device();
  void open_data();
  void declare();
  void apply_filters();
  void apply_rules();
  void make_optimizers();
  void make_steps();
  void summarise();
};

// The manifest's rules onto the declaration. Throws Failure: a rule that matches nothing, two of one layer that
// disagree.
void apply_parameter_rules(Declaration& d, const Manifest& manifest, const Plan& plan);

}  // namespace mortise
