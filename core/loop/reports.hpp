// What a step was, known when the device has got there. A step packs its numbers into one vector on the device, whose
// copy to the host is begun at once and read some steps later, so that nobody waits for it. With a depth of 0, as on
// the CPU, it is read at once, by the same code.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
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
  // How long the device had nothing to do between the end of the step before and the beginning of this one; nothing on
  // the host's processor.
  std::optional<double> idle_s;
  // How long this rank waited for others since the report before: on a device its stream, and the host as long as the
  // device had nothing to do meanwhile. What is beside the steps is not in it.
  double waited_s = 0;
  std::vector<std::string> without_gradient;  // trainable parameters, in the first step
  // When the step ended. The device measures from one report to the next alone, so the first report counts as ended
  // when it was read, which may be later, and each further one as much after the one before as the device says.
  std::chrono::steady_clock::time_point ended = {};
  // How much later than in truth that first one was counted. It shows where nothing is under way any more, as the host
  // then waited for the report and read it at once; `ended` of what follows no longer has it. Elsewhere 0.
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
  // A step begins on the host.
  void start() { takes_waits_ = true; }
  // Runs what waits for other ranks, and takes the time: by the host's clock, on a device by that of its stream. A wait
  // inside another counts once.
  void wait(c10::Device device, const std::function<void()>& body);
  // Before anything of a step is put on the device's queue.
  void begin(c10::Device device);
  void push(StepReport begun, const StepScalars& scalars);
  // What comes before the next step is no part of the steps, and nothing that a device waited for.
  void pause() {
    is_paused_ = true;
    takes_waits_ = false;
  }
  // The oldest that has not been taken, if more than `depth` are under way, or if `now`; waits for the device's copy,
  // and calls `arrived`, which may throw, before it is taken.
  std::optional<StepReport> take(bool now, const std::function<void()>& arrived = {});
  int under_way() const { return static_cast<int>(pending_.size()); }

 private:
  using Waits = std::vector<std::pair<c10::Event, c10::Event>>;  // each from here to there
  struct Pending {
    StepReport report;
    at::Tensor packed;                          // float64 [4 + metrics], on the host
    std::optional<c10::Event> begins, arrives;  // on a device: the step, and the copy of its report
    Waits waits;                                // on a device
    bool follows;                               // the step before it: nothing came between
  };
  int depth_;
  std::deque<Pending> pending_;
  std::optional<c10::Event> begins_;
  bool is_paused_ = false;
  bool takes_waits_ = false;        // from the first step on, but not in a pause nor inside another wait
  double waited_s_ = 0;             // on the host, since the last push
  Waits waits_;                     // on the device, likewise
  std::optional<c10::Event> last_;  // of the report that was read last, which ended at:
  std::chrono::steady_clock::time_point last_ended_;
};

}  // namespace mortise
