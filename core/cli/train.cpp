// mortise train [RUN]
#include <csignal>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "core/cli/common.hpp"
#include "core/loop/run.hpp"
#include "core/state/run_directory.hpp"

namespace mortise::cli {
namespace {

std::atomic<int> asked{0};

void on_signal(int signal) {
  if (signal == SIGINT && asked.exchange(SIGINT) == SIGINT) _exit(kExitInterrupted);  // twice: leave at once
  if (signal == SIGTERM) asked = SIGTERM;
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGHUP, SIG_IGN);
}

Interrupt interrupt() {
  switch (asked.load()) {
    case SIGINT: return Interrupt::kInterrupt;
    case SIGTERM: return Interrupt::kTerminate;
    default: return Interrupt::kNone;
  }
}

}  // namespace

int train(const Arguments& args) {
  const std::string file = args.positional.empty() ? "run.toml" : args.positional[0];
  const auto planned = make_planned(args, file);
  RunDirectory directory(planned->manifest, planned->request);
  Run run({.manifest = &planned->manifest, .plan = &planned->plan, .probe = installation().probe, .dir = directory.path(), .allocate = true, .weights = ""});
  handle_signals();
  directory.begin(run.summary().steps);
  try {
    const int exit = run.train(interrupt);
    directory.end(exit);
    return exit;
  } catch (const Failure& f) {
    directory.end(f.diagnostic.exit);
    throw;
  }
}

}  // namespace mortise::cli
