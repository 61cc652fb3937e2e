// mortise train [RUN]
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"
#include "core/loop/run.hpp"

namespace mortise::cli {
namespace {

std::atomic<int> asked{0};
std::atomic<bool> save_asked{false};

void on_signal(int signal) {
  if (signal == SIGINT && asked.exchange(SIGINT) == SIGINT) _exit(kExitInterrupted);  // twice: leave at once
  if (signal == SIGTERM) asked = SIGTERM;
  if (signal == SIGUSR1) save_asked = true;
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  signal(SIGHUP, SIG_IGN);
}

Interrupt interrupt() {
  switch (asked.load()) {
    case SIGINT:
      return Interrupt::kInterrupt;
    case SIGTERM:
      return Interrupt::kTerminate;
    default:
      return save_asked.exchange(false) ? Interrupt::kSave : Interrupt::kNone;
  }
}

// --json and -q are layers that are shipped.
Arguments with_output(Arguments args) {
  if (globals().json || globals().quiet) args.flags["--include"].push_back(globals().json ? "mortise:json" : "mortise:quiet");
  return args;
}

// Of the environment only what changes a run or explains one, never all of it.
std::string environment(const Summary& summary) {
  utsname system{};
  ::uname(&system);
  std::string variables;
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MORTISE_RUNS", "MORTISE_CACHE", "MORTISE_PLUGIN_PATH", "SLURM_JOB_ID"})
    if (const char* value = std::getenv(name)) variables += std::string(variables.empty() ? "" : ",") + json_string(name) + ":" + json_string(value);
  return "{\"mortise\":" + json_string(MORTISE_VERSION) + ",\"abi\":\"0.1\",\"began\":" + json_string(utc_now()) +
         ",\"host\":" + json_string(system.nodename) +
         ",\"system\":" + json_string(std::string(system.sysname) + " " + system.release + " " + system.machine) +
         ",\"cpus\":" + std::to_string(std::thread::hardware_concurrency()) + ",\"device\":" + json_string(summary.device) +
         ",\"folder\":" + json_string(std::filesystem::current_path().string()) + ",\"variables\":{" + variables + "}}\n";
}

LogLevel log_level(const Manifest& manifest) {
  if (globals().quiet) return LogLevel::kError;
  if (globals().verbose) return LogLevel::kDebug;
  static const std::vector<std::string> names = {"error", "warning", "info", "debug"};
  return static_cast<LogLevel>(std::ranges::find(names, manifest.get("log", "level").as_text()) - names.begin());
}

}  // namespace

int train(const Arguments& given) {
  const Arguments args = with_output(given);
  const auto planned = make_planned(args, args.positional.empty() ? "run.toml" : args.positional[0]);
  RunDirectory directory(planned->manifest, planned->plan, planned->request);
  set_log_level(log_level(planned->manifest));
  set_log_file(directory.path() + "/log.txt");
  const auto run = make_run(*planned, directory.path());
  std::ostringstream plan;
  print_plan(plan, *planned, run->summary());
  directory.write("plan.txt", plan.str());
  directory.write("env.json", environment(run->summary()));
  directory.write("sources/command.txt", globals().command + "\n");
  handle_signals();
  directory.begin(run->summary().steps);
  const auto began = std::chrono::steady_clock::now();
  const Value& limit = planned->manifest.get("run", "time_limit");
  int64_t steps = 0;
  const auto between_steps = [&] {
    directory.progress(++steps);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
    if (limit.is_set() && spent.count() >= limit.as_amount().number) return Interrupt::kTerminate;
    return interrupt();
  };
  try {
    const int exit = run->train(between_steps);
    directory.end(exit);
    return exit;
  } catch (const Failure& f) {
    directory.end(f.diagnostic.exit);
    throw;
  } catch (...) {
    directory.end(kExitBug);
    throw;
  }
}

}  // namespace mortise::cli
