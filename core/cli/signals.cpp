#include "core/cli/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "core/base/diagnostic.hpp"

namespace mortise::cli {
namespace {

std::atomic<int> end{0};
std::atomic<bool> save{false};

void on_signal(int signal) {
  if (signal == SIGINT && end.exchange(SIGINT) == SIGINT) _exit(kExitInterrupted);  // twice: leave at once
  if (signal == SIGTERM) end = SIGTERM;
  if (signal == SIGUSR1) save = true;
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

void handle_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  signal(SIGHUP, SIG_IGN);
  const sigset_t set = handled();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int end_asked() { return end; }
bool save_asked() { return save.exchange(false); }

}  // namespace mortise::cli
