// "Every so often": by applied steps, or by the clock.
#pragma once
#include <chrono>
#include <cstdint>

#include "core/declare/lengths.hpp"

namespace mortise {

class Every {
 public:
  explicit Every(const Period& period) : period_(period) {}
  // Asked once an applied step.
  bool due(int64_t step) {
    if (period_.steps > 0) return step % period_.steps == 0;
    if (period_.seconds <= 0 || !clock_says_so()) return false;
    last_ = Clock::now();
    return true;
  }
  // Could it be due at a step in (from, to]? Whoever does not know yet which step it is must find out first.
  bool may_be_due(int64_t from, int64_t to) const {
    if (period_.steps > 0) return to / period_.steps > from / period_.steps;
    return period_.seconds > 0 && clock_says_so();
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool clock_says_so() const { return std::chrono::duration<double>(Clock::now() - last_).count() >= period_.seconds; }
  Period period_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace mortise
