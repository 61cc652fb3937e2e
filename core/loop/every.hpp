// "Every so often": by applied steps, or by the clock.
#pragma once
#include <chrono>
#include <cstdint>

#include "core/declare/lengths.hpp"

namespace mortise {

class Every {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Every(const Period& period, Clock::time_point now = Clock::now()) : period_(period), last_(now) {}
  // Asked once an applied step.
  bool due(int64_t step, Clock::time_point now = Clock::now()) {
    if (period_.steps > 0) return step % period_.steps == 0;
    if (period_.seconds <= 0 || !clock_says_so(now)) return false;
    last_ = now;
    return true;
  }
  // Could it be due at a step in (from, to]? Whoever does not know yet which step it is must find out first.
  bool may_be_due(int64_t from, int64_t to, Clock::time_point now = Clock::now()) const {
    if (period_.steps > 0) return to / period_.steps > from / period_.steps;
    return period_.seconds > 0 && clock_says_so(now);
  }

 private:
  bool clock_says_so(Clock::time_point now) const {
    return std::chrono::duration<double>(now - last_).count() >= period_.seconds;
  }
  Period period_;
  Clock::time_point last_;
};

}  // namespace mortise
