#include "core/declare/lengths.hpp"

#include <algorithm>
#include <cmath>

namespace mortise {
namespace {

[[noreturn]] void refuse(const Value& v, const std::string& key, const std::string& message, const std::string& fix) {
  throw Failure(mistake("wrong_unit", key + " " + message, v.origin, fix));
}

}  // namespace

int64_t Lengths::steps(const Value& v, const std::string& key) const {
  const Amount a = v.as_amount();
  double steps = a.number;
  switch (a.unit) {
    case Unit::kSteps: break;
    case Unit::kEpochs: steps *= steps_per_epoch; break;
    case Unit::kSamples: steps /= samples_per_step; break;
    case Unit::kTokens:
      if (tokens_per_step <= 0)
        refuse(v, key, "is in tokens, and this data counts none", "write it in steps, epochs or samples");
      steps /= tokens_per_step;
      break;
    case Unit::kPercent: steps *= static_cast<double>(run) / 100.0; break;
    case Unit::kSeconds:
      refuse(v, key, "is a time; the schedule needs steps", "write it in steps, epochs, samples or tokens");
  }
  constexpr double kMost = 0x1p53;
  if (!(steps <= kMost)) refuse(v, key, "is more than 2^53 steps", "a shorter one");
  return steps <= 0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps - 1e-9)));
}

Period Lengths::period(const Value& v, const std::string& key) const {
  if (!v.is_set()) return {};
  if (v.as_amount().unit == Unit::kSeconds) return {0, v.as_amount().number};
  return {steps(v, key), 0};
}

}  // namespace mortise
