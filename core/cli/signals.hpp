// What a person or a scheduler asks of a training by a signal.
#pragma once
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

namespace mortise::cli {

// Whoever sends SIGINT, SIGTERM, SIGHUP or SIGUSR1 from here on waits until handle_signals(): nothing is lost while
// libraries load.
void hold_signals();

// SIGINT and SIGTERM end a training in an orderly way, a second SIGINT at once; SIGUSR1 asks for a checkpoint; SIGHUP
// is ignored. The first thing that `train` and `resume` do. `says`: a SIGINT is answered on stderr.
void handle_signals(bool says);

// While it lives, a run is made, which may wait for other ranks, and nothing of it is there that could be lost: two
// seconds after a SIGINT or a SIGTERM `leave` is called with the exit code on a thread of its own, what it gives is
// printed, and the process ends.
class WhileItBegins {
 public:
  explicit WhileItBegins(const std::function<std::string(int exit)>& leave);
  ~WhileItBegins();
  WhileItBegins(const WhileItBegins&) = delete;
  WhileItBegins& operator=(const WhileItBegins&) = delete;

 private:
  std::promise<void> begun_;
  std::thread waits_;
};

// While it lives, steps are under way that are finished and saved at the first SIGINT. At the second, `leave` is called
// on a thread of its own, what it gives is printed, and the process ends with 130.
class UntilInterruptedTwice {
 public:
  explicit UntilInterruptedTwice(std::function<std::string()> leave);
  ~UntilInterruptedTwice();
  UntilInterruptedTwice(const UntilInterruptedTwice&) = delete;
  UntilInterruptedTwice& operator=(const UntilInterruptedTwice&) = delete;

 private:
  std::thread waits_;
};

// SIGINT or SIGTERM, if one of them came; else 0. The exit code of a run that ends before it begins because of it; else
// 0.
int end_asked();
int exit_asked();
// True once for each SIGUSR1 that came after `since`.
bool save_asked(std::chrono::steady_clock::time_point since);

}  // namespace mortise::cli
