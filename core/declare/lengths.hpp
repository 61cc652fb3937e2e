// Durations as steps: what `run.length`, `every`, `warmup` and `over` mean once the data and the batch are known.
#pragma once
#include <string>

#include "core/manifest/value.hpp"

namespace mortise {

// "Every so often": by steps, or by the clock; neither: never.
struct Period {
  int64_t steps = 0;
  double seconds = 0;
};

struct Lengths {
  double steps_per_epoch = 1, samples_per_epoch = 0, samples_per_step = 1, tokens_per_step = 0;
  int64_t run = 0;  // applied steps of the whole run, for percentages
  // At least 1 for anything above 0. Times are no steps, and no more than 2^53 can be counted: throws Failure naming
  // the key.
  int64_t steps(const Value& v, const std::string& key) const;
  Period period(const Value& v, const std::string& key) const;
};

}  // namespace mortise
