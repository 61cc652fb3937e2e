// mortise resume DIR, and `train --resume`: the same run, from its newest checkpoint that is what was saved.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/assemble/run.hpp"
#include "core/base/text.hpp"
#include "core/cli/changes.hpp"
#include "core/cli/training.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/files.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

// What a run directory says of itself, without what is on the command line but the folders of its plugins.
std::unique_ptr<Planned> stored(const Arguments& args, const std::string& dir, bool weights) {
  Arguments plain;
  if (args.has("--plugin-path")) plain.flags["--plugin-path"] = args.all("--plugin-path");
  return make_planned(plain, dir + "/run.toml", "", weights);
}

// A manifest as it is once it was written to a run directory: what run.toml is compared with.
Manifest recorded(const Planned& p) {
  const std::string path = (fs::temp_directory_path() / ("mortise-" + std::to_string(::getpid()) + ".toml")).string();
  std::ofstream(path) << resolved_toml(p.manifest, p.plan, p.request);
  ManifestRequest request = p.request;
  request.file = path;
  request.includes = request.set = request.use = request.without = {};
  Report report;
  Manifest manifest = read_manifest(request, report);
  fs::remove(path);
  if (report.has_errors()) throw Failure(report.all().front());
  return manifest;
}

std::string without(const Arguments& args, const std::string& flag) {
  std::string all;
  for (const auto& [name, values] : args.flags)
    for (const std::string& value : values)
      if (name != flag && name != "--json" && name != "-q" && name != "-v")
        all += " " + name + (value.empty() ? "" : " " + value);
  return all;
}

// Later checkpoints than the one to go on from belong to a past that is given up; they stay, out of the way.
void set_aside_later(const std::string& root, int64_t step) {
  for (const Found& found : checkpoints_in(root)) {
    if (found.step <= step) continue;
    const fs::path aside = fs::path(root) / "abandoned" / fs::path(found.path).filename();
    fs::create_directories(aside.parent_path());
    fs::remove_all(aside);
    rename_path(found.path, aside.string());
  }
}

// One without a path where nothing was saved yet.
Verified checkpoint_to_go_on_from(const std::string& dir, const std::string& from) {
  if (!from.empty()) return checkpoint_of(dir, from);
  return checkpoints_in(dir + "/checkpoints").empty() ? Verified{} : checkpoint_of(dir, "latest");
}

void say_where(const std::string& dir, const Verified& checkpoint) {
  if (globals().quiet || globals().json) return;
  std::cerr << "resume  " << escape_control(dir);
  if (checkpoint.path.empty()) {
    std::cerr << " from the beginning: nothing was saved yet\n";
    return;
  }
  std::cerr << " at step " << with_commas(checkpoint.step) << " (checkpoints/"
            << fs::path(checkpoint.path).filename().string() << ": " << checkpoint.manifest.files.size() + 1
            << " files, hashes match)\n";  // with the manifest itself
}

// A run that is over, and that its manifest does not make longer.
bool is_finished(const std::string& dir, const Planned& p) {
  const auto status = status_of(dir);
  if (!status || status->state != "finished") return false;
  if (declared_summary(p).steps > status->of) return false;
  if (!globals().quiet && !globals().json)
    std::cerr << escape_control(dir) << " is finished, at step " << with_commas(status->step)
              << "; longer: mortise resume " << escape_control(shell_word(dir)) << " --set run.length=…\n";
  return true;
}

int go_on(const std::string& dir, const Session& session, const std::string& from, bool changed) {
  if (from.empty() && is_finished(dir, *session.run)) return kExitOk;
  RunDirectory directory(dir);
  const std::string root = dir + "/checkpoints";
  const Verified checkpoint = checkpoint_to_go_on_from(dir, from);
  remove_leftovers(root);
  if (!from.empty()) set_aside_later(root, std::stoll(from));
  if (changed) directory.record(session.run->manifest, session.run->plan, session.run->request);
  say_where(dir, checkpoint);
  return train_in(directory, session, checkpoint);
}

}  // namespace

int resume_manifest(const Arguments& args, const std::string& dir, const Session& session) {
  const Planned& now = *session.run;
  const auto was = stored(args, dir, /*weights=*/false);
  std::vector<Change> changes = changes_between(was->manifest, recorded(now), now.catalogue);
  // What a person wrote stands in their file, not in the one that was compared.
  const auto positions = changes_between(was->manifest, now.manifest, now.catalogue);
  for (Change& c : changes)
    if (const auto written = std::ranges::find(positions, c.key, &Change::key); written != positions.end())
      c.is_at = written->is_at;
  if (std::ranges::all_of(changes, [](const Change& c) { return c.change == "free"; }))
    return go_on(dir, session, "", !changes.empty());

  Diagnostic d = mistake("manifest_changed", now.manifest.path + " no longer describes " + dir);
  d.lines = lines_of(changes);
  d.fixes = {"continue as it was:   mortise resume " + dir};
  std::string sets;
  for (const Change& c : changes)
    if (c.change != "fixed") sets += " --set " + c.key + "=" + c.is;
  if (std::ranges::none_of(changes, [](const Change& c) { return c.change == "fixed"; }))
    d.fixes.push_back("continue changed:     mortise resume " + dir + sets + "     (recorded in the run)");
  d.fixes.push_back("begin again:          mortise train " + now.manifest.path + without(args, "--resume"));
  throw Failure(d);
}

int resume(const Arguments& args) {
  if (args.positional.empty())
    throw Failure(mistake("missing_word", "`mortise resume` needs a run directory", {}, "mortise resume runs/latest"));
  const std::string dir = args.positional[0], file = dir + "/run.toml";
  must_hold_a_run(dir, "resume");
  const bool anew =
      checkpoints_in(dir + "/checkpoints").empty();  // else they were taken long ago, and need not be there any more
  const Session session = make_session(args, file, anew);
  const auto was = stored(args, dir, anew);
  const auto changes = changes_between(was->manifest, session.run->manifest, session.run->catalogue);
  for (const Change& c : changes)
    if (c.change == "fixed") {
      Diagnostic d = mistake("fixed_key", "`" + c.key + "` is fixed for a run; its checkpoints are of " + c.was,
                             c.is_at, "begin again: mortise train " + file + without(args, "--from"));
      d.effect = "with " + c.is + " it would be another run";
      throw Failure(d);
    }
  return go_on(dir, session, args.last("--from"), !changes.empty());
}

}  // namespace mortise::cli
