// mortise resume DIR, and `train --resume`: the same run, from its newest checkpoint that is what was saved.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/assemble/changes.hpp"
#include "core/assemble/run.hpp"
#include "core/base/text.hpp"
#include "core/cli/signals.hpp"
#include "core/cli/training.hpp"
#include "core/store/files.hpp"
#include "core/store/folder.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

// What a run directory says of itself, without what is on the command line but the folders of its plugins.
std::unique_ptr<Planned> stored(const Arguments& args, PlanSource source) {
  Arguments plain;
  if (args.has("--plugin-path")) plain.flags["--plugin-path"] = args.all("--plugin-path");
  source.warnings = PlanSource::Warnings::kNone;
  return make_planned(plain, source);
}

std::string without(const Arguments& args, const std::string& flag) {
  std::string all;
  for (const auto& [name, values] : args.flags)
    for (const std::string& value : values)
      if (name != flag && name != "--json" && name != "-q" && !(name == "--set" && value.starts_with("run.dir=")))
        all += " " + name + (value.empty() ? "" : " " + shell_word(value));
  return all;
}

void say_where(const std::string& dir, const Verified& checkpoint) {
  if (globals().quiet || globals().json) return;
  const auto status = status_of(dir);
  const bool is_other = status && status->ranks > 0 && status->ranks != world().size;
  const std::string ranks = is_other ? fmt::format("; ranks: {} now, {} before", world().size, status->ranks) : "";
  if (checkpoint.path.empty()) {
    std::cerr << "resume  " << escape_control(dir) << " from the beginning: nothing was saved yet" << ranks << "\n";
    return;
  }
  std::cerr << fmt::format("resume  {} at step {} (checkpoints/{}: {} files, hashes match){}\n", escape_control(dir),
                           with_commas(checkpoint.step), fs::path(checkpoint.path).filename().string(),
                           checkpoint.manifest.files.size() + 1, ranks);  // with the manifest itself
}

std::string told_finished(const std::string& dir, const Status& status) {
  const bool early = status.step < status.of;  // a plugin asked for the end
  return dir + " is finished, at step " + with_commas(status.step) + (early ? " of " + with_commas(status.of) : "");
}

// A person who sets a key of a run that is over expects something of it, and nothing would come.
[[noreturn]] void refuse_unused(const std::string& dir, const Status& status, const std::vector<Change>& changes) {
  Diagnostic d =
      mistake("run_finished", told_finished(dir, status) + ", and `" + changes.front().key + "` would change nothing",
              changes.front().is_at,
              status.step < status.of ? "go on from there: --from " + std::to_string(status.step)
                                      : "go on longer: --set run.length=…");
  d.fixes.push_back("go on from an earlier checkpoint: --from STEP");
  d.effect = "nothing was done, and nothing was recorded";
  throw Failure(d);
}

// A run that is over, and that its manifest does not make longer. `asked`: what a person changes.
bool is_finished(const std::string& dir, const Planned& p, const std::vector<Change>& asked) {
  const auto status = status_of(dir);
  if (!status || status->state != "finished") return false;
  const int64_t steps = declared_summary(p).steps;
  if (steps > status->of) return false;
  const auto length = std::ranges::find(asked, "run.length", &Change::key);
  if (length != asked.end() && steps < status->step) refuse_length(status->step, steps, status->step + 1, p.manifest);
  if (!asked.empty()) refuse_unused(dir, *status, asked);
  if (globals().quiet || globals().json || world().rank > 0) return true;
  const bool early = status->step < status->of;
  std::cerr << escape_control(told_finished(dir, *status)) << (early ? "; go on from there: " : "; longer: ")
            << resume_command(p, dir) << (early ? " --from " + std::to_string(status->step) : " --set run.length=…")
            << "\n";
  return true;
}

constexpr const char* kTimeLimit = "run.time_limit";

// What is recorded is what the run is from here on. A time limit is of one attempt: who resumes with another, or with
// none, does not set it for good.
Manifest to_record(const Manifest& was, Manifest now) {
  now.tables["run"]["time_limit"] = was.get("run", "time_limit");
  return now;
}

// What was done is not thrown away in silence. `begins`: who starts runs by itself has asked for a beginning, and loses
// nothing where nothing was ever saved.
void refuse_beginning(const std::string& dir, bool begins, const Planned& p) {
  const auto status = status_of(dir);
  if (!status || (begins ? !status->had_saved() : status->step == 0)) return;
  Diagnostic d = trouble(kExitData, "no_checkpoint",
                         dir + " came to step " + with_commas(status->step) + ", and has no checkpoint to go on from");
  if (was_never_saved(dir)) d.fixes = {"begin it again: " + command_to_go_on(dir, &p)};
  else
    d.fixes = {"put one back into " + dir + "/checkpoints",
               "begin another like it: mortise train " + shell_word(dir + "/run.toml") + ranks_flag_of(dir)};
  d.effect = "nothing was started; the run and its history are as they were";
  throw Failure(d);
}

struct Going {
  std::string from;
  bool begins = false;
  std::vector<Change> changes;
};

int go_on(const std::string& dir, const Session& session, const Manifest& was, const Going& going) {
  const std::vector<Change> asked = going.begins ? std::vector<Change>() : going.changes;
  if (going.from.empty() && is_finished(dir, *session.run, asked)) return kExitOk;
  if (world().rank > 0) return train_along(session);
  RunDirectory directory(dir, session.run->manifest);
  CheckpointFolder folder(dir + "/checkpoints");
  const auto choose = [&] {
    return folder.choose(going.from, [](const Diagnostic& d) { say(d); }).value_or(Verified{});
  };
  const Verified checkpoint = or_the_newest(going.from, "--from", choose);
  if (checkpoint.path.empty()) refuse_beginning(dir, going.begins, *session.run);
  say_where(dir, checkpoint);
  // A resume that is refused leaves the run as it was.
  return train_in(directory, session, checkpoint, going.changes, [&] {
    folder.go_on_from(checkpoint);
    if (!going.changes.empty()) directory.record(to_record(was, session.run->manifest), session.run->plan);
  });
}

// run.dir says where a run begins. One that has begun is where it is, and people move it.
void refuse_another_place(const std::string& dir, const Value& was, const Value& now) {
  std::error_code error;
  if (!now.is_set() || (was.is_set() && was.as_text() == now.as_text()) || fs::equivalent(now.as_text(), dir, error))
    return;
  Diagnostic d = mistake("fixed_key", "`run.dir` does not move a run: it goes on in " + dir, now.origin);
  d.effect = "nothing was started";
  const std::string to = shell_word(now.as_text());
  d.fixes = {"mv " + shell_word(dir) + " " + to + " && mortise resume " + to + ranks_flag()};
  throw Failure(d);
}

// The key as `change` has it, as a flag of `resume`.
std::string flag_for(const Change& c, const Manifest& now) {
  if (c.is == "off") return " --without " + c.key;
  if (c.is != "on") return " --set " + shell_word(c.key + "=" + (c.is == "none" ? "default" : c.is));
  std::string flags = " --use " + c.key;
  const auto table = std::ranges::find(now.plugins, c.key, [](const PluginTable& t) { return t.schema->id; });
  for (const auto& [key, value] : table->values)
    if (const auto known = table->schema->config.keys.find(key);
        value.is_set() && (known == table->schema->config.keys.end() || !known->second.default_value.is_set() ||
                           known->second.default_value.text() != value.text()))
      flags += " --set " + shell_word(c.key + "." + key + "=" + value.text());
  return flags;
}

// What makes the run what its manifest now says; "" if nothing does: it is over, or further than that.
std::string flags_for(const std::vector<Change>& changes, const Planned& now, const std::string& dir) {
  const auto status = status_of(dir);
  const bool finished = status && status->state == "finished";
  const bool longer = !status || declared_summary(now).steps > (finished ? status->of : status->step);
  if (std::ranges::count(changes, "fixed", &Change::change) > 0 || (finished && !longer)) return "";
  std::string flags;
  for (const Change& c : changes)
    if (!follows(c) && (longer || c.key != "run.length")) flags += flag_for(c, now.manifest);
  return flags;
}

}  // namespace

Manifest recorded(const Planned& p) {
  ManifestRequest request = p.request;
  request.text = resolved_toml(p.manifest, p.plan);
  request.recorded = true;
  request.includes = request.set = request.use = request.without = {};
  Report report;
  Manifest manifest = read_manifest(request, report);
  if (report.has_errors()) throw Failure(report.all().front());
  return manifest;
}

int resume_manifest(const Arguments& args, const std::string& dir, const Session& session) {
  const Planned& now = *session.run;
  PlanSource source = source_of_run(dir);
  source.weights = false;
  source.folders = plugin_paths_of(now.request);
  const auto was = stored(args, source);
  std::vector<Change> changes = changes_between(was->manifest, recorded(now), now.catalogue);
  // What a person wrote stands in their file, not in the one that was compared.
  const auto positions = changes_between(was->manifest, now.manifest, now.catalogue);
  for (Change& c : changes)
    if (const auto written = std::ranges::find(positions, c.key, &Change::key); written != positions.end())
      c.is_at = written->is_at;
  if (std::ranges::all_of(changes, [](const Change& c) { return c.change == "free"; }))
    return go_on(dir, session, was->manifest, {"", /*begins=*/true, changes});

  Diagnostic d = mistake("manifest_changed", now.manifest.path + " no longer describes " + dir);
  d.lines = lines_of(changes);
  const std::string again = command_to_go_on(dir, was.get());
  d.fixes = {"continue as it was:   " + again};
  if (const std::string flags = flags_for(changes, now, dir); !flags.empty() && !was_never_saved(dir))
    d.fixes.push_back("continue changed:     " + again + flags + "     (recorded in the run)");
  d.fixes.push_back("begin again:          mortise train " + shell_word(now.manifest.path) + without(args, "--resume") +
                    ranks_flag() +
                    (now.manifest.get("run", "dir").is_set() ? " --set run.dir=" + shell_word(next_name(dir)) : ""));
  throw Failure(d);
}

int resume(const Arguments& args) {
  handle_signals(/*says=*/!globals().quiet && !globals().json);
  PlanSource source = source_of_run(run_directory_at(args.positional[0], "resume"));
  // Else the weights were taken long ago, and need not be there any more.
  source.weights = checkpoints_in(source.dir + "/checkpoints").empty();
  source.warnings = PlanSource::Warnings::kNew;
  const Session session = make_session(args, source);
  const auto was = stored(args, source);
  refuse_another_place(source.dir, was->manifest.get("run", "dir"), session.run->manifest.get("run", "dir"));
  auto changes = changes_between(was->manifest, session.run->manifest, session.run->catalogue);
  for (const Change& c : changes)
    if (c.change == "fixed") {
      Diagnostic d =
          mistake("fixed_key", "`" + c.key + "` is fixed for a run; its checkpoints are of " + c.was, c.is_at,
                  "begin again: mortise train " + shell_word(source.file) + without(args, "--from") + ranks_flag());
      d.effect = "with " + c.is + " it would be another run";
      throw Failure(d);
    }
  std::erase_if(changes, [](const Change& c) { return c.key == kTimeLimit; });
  return go_on(source.dir, session, was->manifest, {args.last("--from"), /*begins=*/false, changes});
}

}  // namespace mortise::cli
