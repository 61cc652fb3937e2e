// What of a run stands in a checkpoint as JSON: counts (state.json), and what plugins keep (plugins/ID.json). Both are
// read from files that anybody may have written: every value is checked before anything is restored from it.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace mortise {

struct RunState {
  int64_t attempted = 0, applied = 0;  // steps
  int64_t samples = 0, tokens = 0;     // trained on
  int64_t cursor = 0;                  // micro-batches that each rank took from the data
  int64_t ranks = 1;                   // how many they were
  int64_t step_samples = 0;            // of a whole step of all of them; 0: not known
  uint64_t seed = 0;
  double scale = 1;         // of the loss
  double loss_first = NAN;  // NaN: no step was applied yet
  double best = NAN;        // of the metric that [checkpoint] best names; NaN: nothing was chosen
  int64_t best_step = -1;
  std::string best_by = "eval.loss";  // that metric
  int64_t evaluated = -1;             // the last step that was evaluated
  int64_t confirmed = -1;             // steps up to this one were followed by a good one
};

constexpr const char* kStateFile = "state.json";
constexpr size_t kMaxState = size_t{64} << 10;  // bytes

// Throws Failure (exit 65) for a state that parse_state would refuse: what cannot be resumed from is not saved.
std::string state_text(const RunState& state);
// The state of a checkpoint of `step`. Throws Failure (code other_state, exit 65): a value is missing, of another type,
// out of its range, or contradicts the step.
RunState parse_state(std::string_view text, const std::string& path, int64_t step);

// A piece of a plugin's state, UTF-8 of the plugin's own form.
struct PluginBlob {
  uint32_t version = 0;
  std::string text;
};
using PluginBlobs = std::map<std::string, PluginBlob>;  // by name

constexpr size_t kMaxBlobs = size_t{16} << 20;      // bytes of a file
std::string blobs_file(const std::string& plugin);  // plugins/ID.json
// Throws Failure (code plugin_state, exit 71) that names the plugin: a text is not UTF-8, or all of them are too much.
std::string blobs_text(const std::string& plugin, const PluginBlobs& blobs);
// Throws Failure (code other_state, exit 65).
PluginBlobs parse_blobs(std::string_view text, const std::string& path);

}  // namespace mortise
