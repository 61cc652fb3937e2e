#include "core/cli/signals.hpp"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string_view>

#include "core/base/diagnostic.hpp"

namespace mortise::cli {
namespace {

std::atomic<int> end{0};
std::atomic<int64_t> save_asked_at{0};

// What a handler may read and do: plain memory, write(), sem_post().
std::atomic<bool> answers{false}, trains{false}, over{false};
std::atomic<int64_t> pressed_at{0};
sem_t interrupted_twice;
bool begins_a_line = false;

void say(std::string_view text) {
  if (!answers) return;
  const auto put = [](std::string_view part) { return ::write(STDERR_FILENO, part.data(), part.size()); };
  if (begins_a_line && put("\n") < 0) return;  // the terminal has shown ^C
  if (put(text) < 0) return;
}

// `timeout -s INT` sends its signal twice, to the process and to its group. So does the parent of `--ranks` to ranks
// that a signal to its whole group has reached too.
constexpr int64_t kOnePressNs = 500'000'000;

// As std::chrono::steady_clock counts.
int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

void on_interrupt() {
  const int64_t now = now_ns();
  int64_t before = pressed_at;
  end = SIGINT;
  if ((before != 0 && now - before < kOnePressNs) || !pressed_at.compare_exchange_strong(before, now)) return;
  if (before == 0)
    return say(trains ? "stopping after this step and saving; again: leave without saving\n" : "stopping\n");
  static std::atomic<bool> leaving{false};
  if (!trains || leaving.exchange(true)) _exit(kExitInterrupted);
  sem_post(&interrupted_twice);
}

void on_signal(int signal) {
  const int error = errno;
  if (signal == SIGINT) on_interrupt();
  if (signal == SIGTERM) end = SIGTERM;
  if (signal == SIGUSR1) save_asked_at = now_ns();
  errno = error;
}

sigset_t handled() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void hold_signals() {
  const sigset_t set = handled();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void handle_signals(bool says) {
  answers = says;
  begins_a_line = ::isatty(STDERR_FILENO) != 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  signal(SIGHUP, SIG_IGN);
  const sigset_t set = handled();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

WhileItBegins::WhileItBegins(const std::function<std::string(int exit)>& leave) {
  waits_ = std::thread([leave, begun = begun_.get_future()] {
    constexpr std::chrono::milliseconds kLook{100};
    for (int looks = 20; looks > 0; looks -= end_asked() != 0)
      if (begun.wait_for(kLook) == std::future_status::ready) return;
    const int exit = exit_asked();
    if (const std::string text = leave(exit); !text.empty()) say(text);
    _exit(exit);
  });
}

WhileItBegins::~WhileItBegins() {
  begun_.set_value();
  waits_.join();
}

UntilInterruptedTwice::UntilInterruptedTwice(std::function<std::string()> leave) {
  sem_init(&interrupted_twice, 0, 0);
  over = false;
  waits_ = std::thread([leave = std::move(leave)] {
    const sigset_t set = handled();  // here they arrive, whatever a plugin has blocked in the thread that trains
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    while (sem_wait(&interrupted_twice) != 0) {
    }
    if (over) return;
    say(leave() + "\n");
    _exit(kExitInterrupted);
  });
  trains = true;
}

UntilInterruptedTwice::~UntilInterruptedTwice() {
  trains = false;
  over = true;
  sem_post(&interrupted_twice);
  waits_.join();
}

int end_asked() { return end; }
int exit_asked() { return end == 0 ? kExitOk : end == SIGINT ? kExitInterrupted : kExitResumable; }
bool save_asked(std::chrono::steady_clock::time_point since) {
  const int64_t at = save_asked_at.exchange(0);
  return at != 0 && std::chrono::nanoseconds(at) > since.time_since_epoch();
}

}  // namespace mortise::cli
