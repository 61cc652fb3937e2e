// mortise train [RUN]: the time limit, what a run directory is told, and how to go on
#include <spdlog/fmt/fmt.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "core/assemble/changes.hpp"
#include "core/assemble/run.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/cli/json.hpp"
#include "core/cli/signals.hpp"
#include "core/cli/training.hpp"
#include "core/cli/world.hpp"
#include "core/plugin/crash.hpp"
#include "core/plugin/load.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/files.hpp"

namespace mortise::cli {
namespace {

Interrupt interrupt(std::chrono::steady_clock::time_point since) {
  switch (end_asked()) {
    case SIGINT: return Interrupt::kInterrupt;
    case SIGTERM: return Interrupt::kTerminate;
    default: return save_asked(since) ? Interrupt::kSave : Interrupt::kNone;
  }
}

// As the line `device` names it, without why it is this one, which is of one attempt.
std::string device_of(const Planned& p, const Summary& summary) {
  const Claim& claim = p.plan.at[kDevice].providers.back();
  const std::string& id = p.plan.members[static_cast<size_t>(claim.member)].info->schema.id;
  return id + ", " + escape_control(summary.details.at(id));
}

// Of the environment only what changes a run or explains one, never all of it.
std::string environment(const std::string& device) {
  utsname system{};
  ::uname(&system);
  Json variables = Json::object();
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MORTISE_RUNS",
                           "MORTISE_CACHE", "MORTISE_PLUGIN_PATH", "SLURM_JOB_ID"})
    if (const char* value = std::getenv(name)) variables[name] = value;
  return text_of({{"mortise", MORTISE_VERSION},
                  {"abi", abi_text(kOurAbi)},
                  {"began", utc_now()},
                  {"host", system.nodename},
                  {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
                  {"cpus", std::thread::hardware_concurrency()},
                  {"device", device},
                  {"folder", std::filesystem::current_path().string()},
                  {"variables", variables}}) +
         "\n";
}

// The same manifest gives other last bits on another processor, or with another number of threads. Of another kind of
// device, which a run may get without a word of its manifest, it is always said.
void warn_of_another_device(const std::string& dir, const Manifest& manifest, const std::string& device) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  const Json was = Json::parse(read_run_file_if_any(dir, "env.json", kMostBytes).value_or(""), nullptr, false);
  if (!was.is_object() || !was.contains("device") || !was["device"].is_string() || was["device"] == device) return;
  const auto kind = [](const std::string& text) { return text.substr(0, text.find(',')); };
  if (!manifest.get("run", "deterministic").as_bool() && kind(was["device"]) == kind(device)) return;
  say(as_warning(
      trouble(kExitOk, "other_device",
              "it was computed with " + escape_control(was["device"].get<std::string>()) + " before, now " + device),
      "from here on the bits differ from those of a run that was never interrupted"));
}

LogLevel log_level(const Manifest& manifest) {
  if (globals().quiet) return LogLevel::kError;
  static const std::vector<std::string> names = {"error", "warning", "info", "debug"};
  return static_cast<LogLevel>(std::ranges::find(names, manifest.get("log", "level").as_text()) - names.begin());
}

// Of a run that goes on: every value as from where it was first written, not from its run.toml.
void restore_provenance(Planned& p, const std::string& dir) {
  const auto origins = read_run_file_if_any(dir, "sources/origins.json", kMostOriginBytes);
  if (!origins) return;
  restore_origins(p.manifest, *origins);
  Report known;  // it was made before, without a mistake
  p.plan = plan_here(p.manifest, p.catalogue, known);
}

void say_how_to_go_on(const Planned& p, const std::string& dir, int exit) {
  const bool stopped = exit == kExitInterrupted || exit == kExitResumable;
  if (stopped && !globals().quiet && !globals().json) std::cerr << "next    " << command_to_go_on(dir, &p) << "\n";
}

// Nobody should take a run for done whose end is nowhere.
void say_not_saved(const Planned& p, const std::string& dir, int64_t step) {
  Diagnostic d = trouble(kExitIo, "checkpoint_not_saved",
                         "the run came to its end, step " + with_commas(step) + ", which is not saved", "",
                         "when it can be saved: " + resume_command(p, dir));
  try {
    const std::vector<Found> saved = checkpoints_in(dir + "/checkpoints");
    d.effect = saved.empty() ? "nothing of it is saved" : "the newest checkpoint is step " + with_commas(saved[0].step);
    if (saved.empty())
      d.fixes = {"begin again where it can be saved: mortise train " + shell_word(dir + "/run.toml") + ranks_flag()};
  } catch (const Failure& f) {
    d.effect = f.diagnostic.message;
  }
  say(d);
}

// Who interrupts twice waits for nobody, not even for a disk that hangs: `writes` is of status.json.
std::string leave(RunDirectory& directory, int64_t step, std::timed_mutex& writes, const std::string& again) {
  if (writes.try_lock_for(std::chrono::seconds(1))) directory.end(kExitInterrupted, step);  // and it stays locked
  const std::vector<Found> saved = checkpoints_in(directory.path() + "/checkpoints");
  return "left without saving; " +
         (saved.empty() ? "there is no checkpoint yet"
                        : "the newest checkpoint is step " + with_commas(saved.front().step) + ": " + again);
}

// The parent of `--ranks` says for all of them what to do; other launchers do not know.
bool is_said_by_nobody(const Diagnostic& d) {
  return d.code == "rank_lost" && d.fixes.empty() && world().by != kOwnLauncher;
}

int train_from_here(RunDirectory& directory, Run& run, const std::string& again) {
  std::timed_mutex writes;
  std::atomic<int64_t> step = run.step();  // that thread may not ask the run itself
  const UntilInterruptedTwice here([&] { return leave(directory, step, writes, again); });
  directory.begin(step, run.summary().steps);
  RunUnderWay::set_step(step + 1);
  // Of several ranks all hear of it at the same place, in the training.
  if (const int exit = exit_asked(); exit && world().size == 1) return exit;
  return run.train([&](std::chrono::steady_clock::time_point since) {
    const std::lock_guard lock(writes);
    step = run.step();
    directory.progress(step);
    RunUnderWay::set_step(step + 1);
    return interrupt(since);
  });
}

}  // namespace

Session make_session(const Arguments& args, PlanSource source) {
  const auto planned = [&](const Arguments& with) {
    auto p = make_planned(with, source);
    if (!source.dir.empty()) restore_provenance(*p, source.dir);
    return p;
  };
  Session s;
  s.run = planned(args);
  settle_device(*s.run);
  if (globals().json || globals().quiet) {
    Arguments with = args;
    with.flags["--include"].push_back(globals().json ? "mortise:json" : "mortise:quiet");
    source.warnings = PlanSource::Warnings::kNone;
    s.output = planned(with);
  }
  return s;
}

void refuse_length(int64_t step, int64_t steps, int64_t least, const Manifest& manifest) {
  Diagnostic d = mistake("length_passed",
                         fmt::format("the run is at step {}, and `run.length` would end it at step {}",
                                     with_commas(step), with_commas(steps)),
                         manifest.get("run", "length").origin, fmt::format("--set run.length={}, or more", least));
  d.effect = "nothing was started; the run is as it was";
  throw Failure(d);
}

int train_in(RunDirectory& directory, const Session& session, const Found& checkpoint,
             const std::vector<Change>& changes, const std::function<void()>& restored) {
  const Planned& planned = session.shown();
  set_log_level(log_level(planned.manifest));
  set_log_file(directory.path() + "/log.txt");
  if (const int exit = exit_asked()) return exit;
  std::unique_ptr<Run> run;
  int64_t reached = checkpoint.step;
  const auto step = [&] { return run ? reached = run->step() : reached; };  // also of a run that is being destroyed
  const RunUnderWay under_way(directory.path(), resume_command(planned, directory.path()), [&](int exit) {
    // Of a run that was not restored, what was true before still is.
    if (run || checkpoint.path.empty()) directory.end(exit, step());
  });
  // With a number behind its name, or where `run.dir` says.
  const bool is_named = directory.path() == directory_of(planned.manifest);
  const std::string again = is_named ? "" : " --set run.dir=" + shell_word(directory.path());
  const auto tell = [&](bool saves) {
    tell_parent(directory.path(), resume_command(planned, directory.path()), again, saves);
  };
  tell(/*saves=*/false);
  std::optional<WhileItBegins> begins([&](int exit) {
    if (checkpoint.path.empty()) directory.end(exit, 0);
    return "stopped before the first step; next    " + resume_command(planned, directory.path()) + "\n";
  });
  run = make_run(planned, {.dir = directory.path(),
                           .before_save = [&] { directory.must_be_here(); },
                           .fixed = fixed_of(recorded(*session.run), session.run->catalogue),
                           .checkpoint = checkpoint});
  begins.reset();
  tell(/*saves=*/true);
  // Standard output is for records, of the plugin that took it when it was made; what others print goes elsewhere.
  if (globals().json) ::dup2(STDERR_FILENO, STDOUT_FILENO);
  std::vector<Diagnostic> warnings = run->summary().warnings;
  if (!checkpoint.path.empty()) drop_unchanged(warnings, changes);
  say_warnings(std::move(warnings));
  if (const int64_t at = step(), steps = run->summary().steps; at > steps) {
    run.reset();
    refuse_length(at, steps, at, session.run->manifest);
  }
  restored();
  const std::string device = device_of(planned, run->summary());
  if (!checkpoint.path.empty() && !globals().quiet)
    warn_of_another_device(directory.path(), session.run->manifest, device);
  std::ostringstream plan;
  print_plan(plan, *session.run, run->summary());
  directory.write("plan.txt", plan.str());
  directory.write("env.json", environment(device));
  directory.add_command(globals().command + (world().by == kOwnLauncher ? ranks_flag() : ""));
  try {
    int exit = train_from_here(directory, *run, resume_command(planned, directory.path()));
    step();
    run.reset();  // what goes wrong when a plugin is destroyed counts too
    if (exit == kExitOk && any_late_failure()) exit = kExitPlugin;
    directory.end(exit, step());
    if (exit == kExitIo) say_not_saved(planned, directory.path(), step());
    say_how_to_go_on(planned, directory.path(), exit);
    return exit;
  } catch (Failure& f) {
    directory.end(f.diagnostic.exit, step());
    if (f.diagnostic.code == "rank_lost") tell(/*saves=*/false);
    if (is_said_by_nobody(f.diagnostic))
      f.diagnostic.fixes = {"nothing is saved yet: start it again as before, with" + again + " --resume"};
    throw;
  } catch (...) {
    directory.end(kExitBug, step());
    throw;
  }
}

int train_along(const Session& session) {
  const Planned& planned = session.shown();
  set_log_level(log_level(planned.manifest));
  if (const int exit = exit_asked()) return exit;
  std::optional<WhileItBegins> begins([](int) { return ""; });
  const auto run = make_run(planned, {.fixed = fixed_of(recorded(*session.run), session.run->catalogue)});
  begins.reset();
  try {
    return run->train(interrupt);
  } catch (Failure& f) {
    if (is_said_by_nobody(f.diagnostic)) f.diagnostic.fixes = {"start all ranks again as before, with --resume"};
    throw;
  }
}

// `train --resume` means NAME, not NAME-2 that another `train` made.
static void say_newer(const Manifest& manifest, const std::string& dir) {
  const auto status = status_of(dir);
  if (manifest.get("run", "dir").is_set() || !status || status->state != "finished" || globals().quiet ||
      globals().json)
    return;
  for (int n = 2;; ++n) {
    const std::string newer = dir + "-" + std::to_string(n);
    if (!std::filesystem::exists(newer)) return;
    const auto other = is_run(newer) ? status_of(newer) : std::nullopt;
    if (other && other->state != "finished")
      std::cerr << escape_control(newer) << " is newer, and not finished: " << command_to_go_on(newer) << "\n";
  }
}

int train(const Arguments& args) {
  handle_signals(/*says=*/!globals().quiet && !globals().json);
  const PlanSource source = source_named(args.positional.empty() ? "run.toml" : args.positional[0], "train");
  const Session session = make_session(args, source);
  const std::string dir = directory_of(session.run->manifest);
  if (args.has("--resume") && is_run(dir)) {
    say_newer(session.run->manifest, dir);
    return resume_manifest(args, run_directory_at(dir, "resume"), session);
  }
  if (world().rank > 0) return train_along(session);
  RunDirectory directory(session.run->manifest, session.run->plan, session.run->request, args.has("--resume"));
  if (!source.dir.empty() && !globals().quiet && !globals().json)
    std::cerr << "begins  another run like " << escape_control(source.dir)
              << "; to go on with that one: " << command_to_go_on(source.dir, session.run.get()) << "\n";
  return train_in(directory, session, {});
}

}  // namespace mortise::cli
