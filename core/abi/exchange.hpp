// What a run and whoever runs it exchange.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace mortise {

// What an evaluation found.
struct Measured {
  std::vector<std::pair<std::string, double>> values;  // "eval.loss" first
  int64_t samples = 0, tokens = 0;                     // counted; 0: the data has none
  std::string about;                                   // the data, as its plugin calls it
  double seconds = 0;
  bool complete = true;    // false: it was given up, and has no values
  bool is_counted = true;  // false: no sample had a target
};

// What a person or a scheduler asked for meanwhile; polled between steps and between the batches of an evaluation.
enum class Interrupt { kNone, kSave, kInterrupt, kTerminate };
// Of saves only one that was asked for after `since`.
using Interrupts = std::function<Interrupt(std::chrono::steady_clock::time_point since)>;

struct SampleRequest {
  std::string prompt;       // "": the plugin's own
  int tokens = 0;           // 0: the plugin's own
  double temperature = -1;  // negative: the plugin's own
  int top_k = -1;
  double top_p = 0;               // 0: the plugin's own
  std::vector<std::string> stop;  // empty: the plugin's own
  uint64_t seed = 0;
  uint32_t text = 0;  // which of several
};

}  // namespace mortise
