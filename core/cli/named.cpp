// What a person names: a run directory, a manifest, a checkpoint.
#include <filesystem>
#include <map>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"
#include "core/store/folder.hpp"
#include "formats/huggingface/config.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {

namespace {

// What to type instead of a name that is no run's: the same with the name that is nearest to it, else which there are.
std::string run_that_is_there(const std::string& word, const std::string& verb) {
  const fs::path named = fs::path(word).lexically_normal();
  std::map<std::string, std::string> runs;  // by name
  std::error_code error, none;
  for (const fs::path& folder : {named.parent_path(), fs::path("runs")})
    for (fs::directory_iterator it(folder.empty() ? "runs" : folder, error), end; !error && it != end;
         it.increment(error))
      if (fs::exists(it->path() / "run.toml", none) && !it->is_symlink(none))
        runs.try_emplace(it->path().filename().string(), it->path().string());
  if (runs.empty()) return "`mortise train` makes one; there is none in " + (fs::current_path(error) / "runs").string();
  std::vector<std::string> names, paths;
  for (const auto& [name, path] : runs) names.push_back(name), paths.push_back(path);
  if (const std::string near = nearest(named.filename().string(), names); !near.empty()) {
    // The rest of what was typed stays.
    const std::string &typed = globals().command, wrong = shell_word(word);
    const size_t begin = typed.find(" " + verb + " "), at = typed.find(" " + wrong, begin);
    const bool is_there = begin != std::string::npos && at != std::string::npos;
    return "mortise " + verb + " " + shell_word(runs.at(near)) + (is_there ? typed.substr(at + 1 + wrong.size()) : "");
  }
  if (paths.size() > 5) paths.resize(5), paths.push_back("…");
  return "runs that are there: " + join(paths, ", ");
}

// A manifest or a model may have been named; else another run is meant.
std::string instead_of(const std::string& word, const std::string& verb) {
  std::error_code error;
  if (fs::exists(fs::path(word) / huggingface::kConfigFile, error))
    return "a model becomes one of a run in a manifest: [model] weights = " + json_string(word);
  if (!fs::is_regular_file(word, error) || fs::path(word).extension() != ".toml") return run_that_is_there(word, verb);
  return "mortise " + (verb == "resume" ? "train " + shell_word(word) + " --resume" : verb + " runs/latest") +
         ranks_flag();
}

constexpr const char* kFlag = "--checkpoint";
void say_it(const Diagnostic& d) { say(d); }

// Nobody named a checkpoint, and the link to the best leads to none of the run's: the newest is taken instead.
void warn_of_best(const std::string& dir, const std::string& which, int64_t taken) {
  std::error_code error;
  const std::string link = dir + "/checkpoints/best";
  if (!which.empty() || globals().quiet || !fs::is_symlink(fs::symlink_status(link, error)) ||
      CheckpointFolder(dir + "/checkpoints").best())
    return;
  say(as_warning(trouble(kExitOk, "best_is_gone", link + " leads to no checkpoint of this run"),
                 "step " + with_commas(taken) + " is taken, the newest"));
}

// What was meant by the path of a run's manifest, or of one of its checkpoints; "" if it is neither.
std::string run_around(const std::string& word, const std::string& verb) {
  std::error_code error;
  const fs::path path = fs::path(word).lexically_normal(), named = path.has_filename() ? path : path.parent_path();
  const fs::path folder = named.parent_path(), run = folder.parent_path();
  const auto command = [&](const fs::path& dir) {
    return "mortise " + verb + " " + shell_word(dir.empty() ? "." : dir.string());
  };
  if (named.filename() == "run.toml" && is_run((folder / ".").string())) return command(folder);
  if (folder.filename() != "checkpoints" || !fs::exists(run / "run.toml", error)) return "";
  const std::string name = named.filename().string(), step(kCheckpoint);
  return command(run) + (verb == "resume" ? " --from " : " --checkpoint ") +
         (name.starts_with(step) ? name.substr(step.size()) : name);
}

}  // namespace

std::string run_directory_at(const std::string& word, const std::string& verb) {
  std::error_code error;
  if (const std::string around = run_around(word, verb); !around.empty())
    throw Failure(trouble(kExitData, "no_run", word + " is inside of a run directory, and is none", "", around));
  if (!fs::exists(fs::path(word) / "run.toml", error))
    throw Failure(
        trouble(kExitData, "no_run", word + " is no run directory: it has no run.toml", "", instead_of(word, verb)));
  const fs::path real = fs::canonical(word), here = fs::current_path();
  const std::string near = real.lexically_proximate(here).string();
  return near == "." || near.starts_with("..") ? real.string() : near;
}

PlanSource source_of_run(const std::string& dir) { return {dir + "/run.toml", dir}; }

// The one manifest in it may be meant.
[[noreturn]] static void refuse_folder(const std::string& word, const std::string& verb) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(word, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".toml") files.push_back(it->path().lexically_normal().string());
  throw Failure(mistake("file_missing", word + " is a folder, and `mortise " + verb + "` takes a manifest", {},
                        "mortise " + verb + " " + (files.size() == 1 ? shell_word(files[0]) : "FILE.toml")));
}

// A run directory is to be gone on with; or its manifest is to be trained again, which makes another run.
[[noreturn]] static void refuse_run_directory(const std::string& word) {
  const std::string dir = run_directory_at(word, "resume");
  Diagnostic d = mistake("is_a_run", word + " is the directory of a run, and `mortise train` takes a manifest");
  d.effect = "nothing was started";
  d.fixes = {"go on with it:   " + command_to_go_on(dir),
             "begin again:     mortise train " + shell_word(dir + "/run.toml") + ranks_flag_of(dir)};
  throw Failure(d);
}

// A manifest that stands where a run left it is the run's.
PlanSource source_named(const std::string& word, const std::string& verb) {
  std::error_code error;
  const fs::path file(word), folder = file.parent_path();
  if (fs::is_directory(file, error)) {
    if (is_run(word) && verb == "train") refuse_run_directory(word);
    if (is_run(word)) return source_of_run(run_directory_at(word, verb));
    refuse_folder(word, verb);
  }
  if (file.filename() != "run.toml") return {word, ""};
  for (const char* beside : {"status.json", "sources/command.txt"})
    if (fs::exists(folder / beside, error)) return {word, folder.empty() ? "." : folder.string()};
  return {word, ""};
}

// Who waits for a process that is dead waits for ever.
static void refuse_without_checkpoint(const std::string& dir) {
  if (!checkpoints_in(dir + "/checkpoints").empty() || is_being_trained(dir)) return;
  throw Failure(trouble(kExitData, "no_checkpoint", dir + " has no checkpoint, and no process is training it", "",
                        command_to_go_on(dir)));
}

Verified or_the_newest(const std::string& which, const std::string& flag, const std::function<Verified()>& find) {
  try {
    return find();
  } catch (Failure& f) {
    if (f.diagnostic.code == "checkpoint_damaged" && which != "latest")
      f.diagnostic.fixes.push_back(flag + " latest   (the newest that is what was saved)");
    throw;
  }
}

Verified checkpoint_of(const std::string& dir, const std::string& which) {
  refuse_without_checkpoint(dir);
  const CheckpointFolder folder(dir + "/checkpoints");
  const Verified found = or_the_newest(which, kFlag, [&] { return folder.find(which, kFlag, say_it); });
  warn_of_best(dir, which, found.step);
  return found;
}

void with_checkpoint(const std::string& dir, const std::string& which,
                     const std::function<void(const Verified&)>& use) {
  refuse_without_checkpoint(dir);
  or_the_newest(which, kFlag, [&] {
    CheckpointFolder(dir + "/checkpoints").with(which, kFlag, say_it, [&](const Verified& found) {
      warn_of_best(dir, which, found.step);
      use(found);
    });
    return Verified{};
  });
}

}  // namespace mortise::cli
