// mortise train [RUN]: signals, the time limit, and what a run directory is told
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
#include "core/cli/training.hpp"
#include "core/loop/run.hpp"
#include "core/plugin/crash.hpp"

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
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  signal(SIGHUP, SIG_IGN);
}

Interrupt interrupt() {
  switch (asked.load()) {
    case SIGINT: return Interrupt::kInterrupt;
    case SIGTERM: return Interrupt::kTerminate;
    default: return save_asked.exchange(false) ? Interrupt::kSave : Interrupt::kNone;
  }
}

// Of the environment only what changes a run or explains one, never all of it.
std::string environment(const Summary& summary) {
  utsname system{};
  ::uname(&system);
  std::string variables;
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MORTISE_RUNS",
                           "MORTISE_CACHE", "MORTISE_PLUGIN_PATH", "SLURM_JOB_ID"})
    if (const char* value = std::getenv(name))
      variables += std::string(variables.empty() ? "" : ",") + json_string(name) + ":" + json_string(value);
  return "{\"mortise\":" + json_string(MORTISE_VERSION) + ",\"abi\":\"0.1\",\"began\":" + json_string(utc_now()) +
         ",\"host\":" + json_string(system.nodename) +
         ",\"system\":" + json_string(std::string(system.sysname) + " " + system.release + " " + system.machine) +
         ",\"cpus\":" + std::to_string(std::thread::hardware_concurrency()) +
         ",\"device\":" + json_string(summary.device) +
         ",\"folder\":" + json_string(std::filesystem::current_path().string()) + ",\"variables\":{" + variables +
         "}}\n";
}

LogLevel log_level(const Manifest& manifest) {
  if (globals().quiet) return LogLevel::kError;
  if (globals().verbose) return LogLevel::kDebug;
  static const std::vector<std::string> names = {"error", "warning", "info", "debug"};
  return static_cast<LogLevel>(std::ranges::find(names, manifest.get("log", "level").as_text()) - names.begin());
}

}  // namespace

Session make_session(const Arguments& args, const std::string& file, bool weights) {
  Session s;
  s.run = make_planned(args, file, "", weights);
  if (globals().json || globals().quiet) {
    Arguments with = args;
    with.flags["--include"].push_back(globals().json ? "mortise:json" : "mortise:quiet");
    s.output = make_planned(with, file, "", weights);
  }
  return s;
}

int train_in(RunDirectory& directory, const Session& session, const std::string& checkpoint) {
  const Planned& planned = session.shown();
  set_log_level(log_level(planned.manifest));
  set_log_file(directory.path() + "/log.txt");
  const RunUnderWay under_way(directory.path(), [&](int exit) { directory.end(exit); });
  auto run = make_run(planned, {.dir = directory.path(), .checkpoint = checkpoint});
  std::ostringstream plan;
  print_plan(plan, *session.run, run->summary());
  directory.write("plan.txt", plan.str());
  directory.write("env.json", environment(run->summary()));
  directory.add_command(globals().command);
  handle_signals();
  directory.begin(run->step(), run->summary().steps);
  RunUnderWay::set_step(run->step() + 1);
  const auto began = std::chrono::steady_clock::now();
  const Value& limit = planned.manifest.get("run", "time_limit");
  const auto between_steps = [&] {
    directory.progress(run->step());
    RunUnderWay::set_step(run->step() + 1);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
    if (limit.is_set() && spent.count() >= limit.as_amount().number) return Interrupt::kTerminate;
    return interrupt();
  };
  try {
    int exit = run->train(between_steps);
    run.reset();  // what goes wrong when a plugin is destroyed counts too
    if (exit == kExitOk && any_late_failure()) exit = kExitPlugin;
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

int train(const Arguments& args) {
  const Session session = make_session(args, args.positional.empty() ? "run.toml" : args.positional[0]);
  const std::string dir = directory_of(session.run->manifest);
  if (args.has("--resume") && std::filesystem::exists(dir + "/run.toml")) return resume_manifest(args, dir, session);
  RunDirectory directory(session.run->manifest, session.run->plan, session.run->request, args.has("--resume"));
  return train_in(directory, session, "");
}

}  // namespace mortise::cli
