// "Every so often": by applied steps, which all ranks count alike, or by the clock, of which each has its own.
#pragma once
#include <chrono>
#include <cstdint>

#include "core/declare/lengths.hpp"

namespace mortise {

class Every {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Every(const Period& period, Clock::time_point now = Clock::now()) : period_(period), last_(now) {}
  bool due(int64_t step) const { return period_.steps > 0 && step % period_.steps == 0; }
  // Could it be due at a step in (from, to]? Whoever does not know yet which step it is must find out first.
  bool may_be_due(int64_t from, int64_t to) const {
    return period_.steps > 0 && to / period_.steps > from / period_.steps;
  }
  // By the clock, until `restart`.
  bool is_time(Clock::time_point now = Clock::now()) const {
    return period_.seconds > 0 && std::chrono::duration<double>(now - last_).count() >= period_.seconds;
  }
  void restart(Clock::time_point now = Clock::now()) { last_ = now; }

 private:
  Period period_;
  Clock::time_point last_;
};

}  // namespace mortise
