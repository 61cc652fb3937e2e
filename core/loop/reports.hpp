// What a step was, known when the device has got there. A step packs its numbers into one vector on the device, whose
// copy to the host is begun at once and read some steps later, so that nobody waits for it. With a depth of 0, as on
// the CPU, it is read at once, by the same code.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mortise {

// A number of one step beside those that every step has.
template <class Number>
struct Reported {
  std::string name, unit;
  Number number;
  bool operator==(const Reported&) const = default;
};

struct StepReport {
  bool applied = true;
  double loss = 0, norm = 0, lr = 0;
  std::vector<Reported<double>> metrics;  // terms of weight 0, averaged, then what plugins reported
  // Known when the step was begun.
  int64_t attempted = 0;  // steps before this one
  int64_t samples = 0, tokens = 0, epoch = 0, cursor = 0;
  int32_t micros = 1;
  bool is_counted = true;  // false: no sample had anything to learn, and the step was skipped
  double data_wait_s = 0;
  std::vector<std::string> without_gradient;  // trainable parameters, in the first step
  // When it ended, by the device from one report to the next: of several that are read at once each has its own. The
  // first is as late as it was read; with nothing under way any more that is known, and what follows is not `late`.
  std::chrono::steady_clock::time_point ended = {};
  std::chrono::steady_clock::duration late = {};
};

// The device's half of a report: scalars, float64, 0-dim.
struct StepScalars {
  at::Tensor verdict, loss, norm, lr;
  std::vector<Reported<at::Tensor>> metrics;
};

class Reports {
 public:
  // `depth`: how many steps may be under way while their reports are not read.
  explicit Reports(int depth) : depth_(depth) {}
  void push(StepReport begun, const StepScalars& scalars);
  // The oldest that has not been taken, if more than `depth` are under way, or if `now`; waits for the device's copy.
  std::optional<StepReport> take(bool now);
  int under_way() const { return static_cast<int>(pending_.size()); }

 private:
  struct Pending {
    StepReport report;
    at::Tensor packed;                  // float64 [4 + metrics], on the host
    std::optional<c10::Event> arrives;  // of a copy from a device
  };
  int depth_;
  std::deque<Pending> pending_;
  std::optional<c10::Event> last_;  // of the report that was read last, which ended at:
  std::chrono::steady_clock::time_point last_ended_;
};

}  // namespace mortise
