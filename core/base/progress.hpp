// How far a piece of work has come that takes longer than a second: one line on stderr, redrawn on a terminal and gone
// when the work ends, written once where nothing can be redrawn.
#pragma once
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace mortise {

// Where progress goes; with `out` null, nowhere (-q, --json).
struct ProgressScreen {
  std::ostream* out;
  bool redrawn;
  std::chrono::duration<double> after, between;
};
ProgressScreen& progress_screen();

// Whether stderr is a terminal that can draw a line again.
bool stderr_is_redrawn();

// One thread.
class ProgressLine {
 public:
  ProgressLine(std::string what, uint64_t total) : what_(std::move(what)), total_(total) {}
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void add(uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;  // "checking 14 files"
  uint64_t total_, done_ = 0;
  Clock::time_point began_ = Clock::now(), drawn_;
  bool shown_ = false;
};

}  // namespace mortise
