// What a row of a bench came to: from the records of its run to the numbers of the table, and to results.json and back.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/json.hpp"

namespace mortise::cli {

struct Measure {
  std::string name = {}, file = {};
  std::string key = {};      // of all that it was measured with: another one is another row
  std::string build = {};    // of what it was measured with: its bytes
  std::string machine = {};  // where
  std::string state = {};    // "measured", "failed"; "": not yet
  std::string why = {};      // it failed
  std::string device = {};   // as the run says
  int exit = 0;
  int64_t steps = 0, samples = 0;
  double seconds = 0, process_seconds = 0;                // of the training; of its process, from start to end
  std::optional<double> samples_per_s = {};               // of the whole training
  std::optional<double> steady_samples_per_s = {};        // without the steps that warm up
  std::optional<double> tokens_per_s = {};                // likewise; nothing where the data counts none
  std::optional<double> flop_per_s = {}, mfu = {};        // likewise; of what the device reaches
  std::optional<double> loss_first = {}, loss_last = {};  // nothing if not finite
  std::optional<int64_t> memory_peak_bytes = {};          // as the device's allocator says
  std::optional<int64_t> nvml_peak_bytes = {};            // of the whole device, where a plugin reports it
  bool is_measured() const { return state == "measured"; }
};

// Takes the lines of metrics.jsonl as they come.
class Meter {
 public:
  explicit Meter(int64_t warmup) : warmup_(warmup) {}
  void take(std::string_view line);
  // The numbers of a training that has ended; false: there was no end, or no step.
  bool finish(Measure& row) const;
  // "step 12/128  36.4 samples/s  loss 0.702"; "" before the first one.
  std::string progress() const;

 private:
  void take_step(const Json& record);

  int64_t warmup_, step_ = 0, of_ = 0, samples_ = 0;
  double steps_ = 0, seconds_a_sample_ = 0, seconds_a_token_ = 0;  // steady; sums over steps
  double rate_ = 0;                                                // of the last ones
  bool counts_tokens_ = true;
  double seconds_a_flop_ = 0;
  std::optional<double> mfu_per_flop_;
  Measure found_;
  bool ended_ = false;
};

// How many times as fast as the first row; nothing if one of them has no rate.
std::optional<double> ratio(const Measure& row, const Measure& first);
double rate_of(const Measure& row);  // steady, else of the whole; 0: none

Json json_of(const Measure& row, const Measure& first);
Measure measure_of(const Json& json);  // throws Json::exception

}  // namespace mortise::cli
