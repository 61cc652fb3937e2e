// The first of three phases of a run. Declared: plugins are started, the data is open, the model is declared, every
// parameter has its optimizer, lengths are steps; no tensor exists, and no LibTorch is needed. Allocated and Runnable
// (core/assemble) are made of it. Each owns what exists by then, and only that.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/abi/edge.hpp"
#include "core/abi/instances.hpp"
#include "core/abi/listeners.hpp"
#include "core/declare/layer_providers.hpp"
#include "core/declare/lengths.hpp"
#include "core/declare/optimizers.hpp"
#include "core/declare/samples.hpp"
#include "core/declare/weights.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/watchdog.hpp"
#include "mortise/objects.h"
#include "mortise/ranks.h"

namespace mortise {

struct DeclareRequest {
  const Manifest* manifest = nullptr;  // must outlive the run, as the plan
  const Plan* plan = nullptr;
  std::string probe;              // the mortise-probe helper
  std::string weights;            // a safetensors file, or a folder of Hugging Face's, to start from; "": from run.seed
  std::vector<std::string> anew;  // parameters that a run which goes on had to begin anew; known to the first rank
  bool open_device = false;       // a plan asks plugin.toml only
  bool train_samples = true;      // they must be there; else they are read only if a share of them is evaluated on
  std::string split = "validation";  // what evaluations take; "": there will be none, and no data is read
  World world;
};

struct Declared {
  const Manifest* manifest = nullptr;
  const Plan* plan = nullptr;
  std::unique_ptr<Edge> edge;
  std::unique_ptr<Samples> samples;
  int64_t sequence_length = 0;
  std::unique_ptr<CallWatchdog> watchdog;  // over every call of the plugins, `destroy` too; NULL: none is asked for
  // Destroyed before what stands above: a plugin may have threads that load.
  std::unique_ptr<Instances> instances;
  std::unique_ptr<Listeners> listeners;
  std::unique_ptr<LayerProviders> layers;
  Provided<mortise_device> device;
  Provided<mortise_comm> comm;
  Provided<mortise_replicas> replicas;
  Provided<mortise_state_store> store;  // empty: all states are in memory
  Provided<mortise_data> data;
  Provided<mortise_order> order;  // empty: each sample once an epoch
  Provided<mortise_model> model;
  Provided<mortise_schedule> schedule;
  Provided<mortise_sampler> sampler;
  Provided<mortise_format> format;  // empty: nothing is saved
  std::vector<DeclaredOptimizer> optimizers;
  std::vector<Group> groups;
  std::unique_ptr<Weights> weights;  // NULL: parameters start from run.seed
  std::vector<std::string> anew;     // of a run that began from weights: those that these did not have
  Lengths lengths;
  std::vector<Diagnostic> warnings;

  const Value& key(const char* table, const char* name) const { return manifest->get(table, name); }
  // The numbers of an evaluation that plugins which are on say they measure; true: larger ones are better.
  std::map<std::string, bool> measured() const;
  // How many micro-batches the next step takes, by step.window.
  int32_t window() const;
};

// A plugin called for a tensor, and the edge is a plain one.
struct NeedsTensors {
  std::string plugin;
};

// `edge` is a plain one, or a host with tensors. Throws Failure or NeedsTensors.
Declared declare(const DeclareRequest& request, std::unique_ptr<Edge> edge);

// What is wrong with a file of somebody else's format.
Diagnostic diagnostic_of(const FormatError& error);

// What [checkpoint] background says: on the CPU it does not save while training goes on unless asked to.
bool saves_in_background(const Declared& d);

// The text that rank 0 has under this key, on every rank.
std::string said_by_first(const Declared& d, std::string_view key, const std::string& own);

// The manifest's rules onto the declaration. Throws Failure: a rule that matches nothing, two of one layer that
// disagree.
void apply_parameter_rules(Declaration& d, const Manifest& manifest, const Plan& plan);
// Globs of parameters in keys that plugins name, facts [names] parameters. Throws Failure: one that matches nothing.
void check_named_parameters(const Declaration& d, const Plan& plan);
// Their tags alone, which come first: other rules, and listeners, may select by them.
void apply_tag_rules(Declaration& d, const Manifest& manifest);

// Runs `body`; what a plugin of these failed with, or LibTorch, becomes a Failure that a person can read.
template <class Body>
auto diagnosed(const Instances& instances, Body&& body) {
  try {
    return body();
  } catch (const FormatError& e) {
    throw Failure(diagnostic_of(e));
  } catch (const std::exception&) {
    throw Failure(instances.diagnose(as_thrown(status_of_exception())));
  }
}

}  // namespace mortise
