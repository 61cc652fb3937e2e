// Durations as steps: what `run.length`, `every`, `warmup` and `over` mean once the data and the batch are known.
#pragma once
#include <chrono>
#include <optional>

#include "core/manifest/value.hpp"

namespace mortise {

struct Lengths {
  double steps_per_epoch = 1, samples_per_step = 1, tokens_per_step = 0;
  int64_t run = 0;  // applied steps of the whole run, for percentages
  // At least 1 for anything above 0. Times are no steps: throws Failure naming the key.
  int64_t steps(const Value& v, const std::string& key) const;
};

// "Every so often": by steps, or by the clock.
class Every {
 public:
  Every() = default;  // never
  Every(const Value& v, const std::string& key, const Lengths& lengths);
  bool due(int64_t step);  // asked once a step

 private:
  int64_t steps_ = 0;
  double seconds_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace mortise
