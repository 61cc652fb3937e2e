// What a person names: a run directory, a manifest, a checkpoint.
#include <filesystem>
#include <map>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"
#include "core/store/folder.hpp"

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

}  // namespace

std::string run_directory_at(const std::string& word, const std::string& verb) {
  std::error_code error;
  if (!fs::exists(fs::path(word) / "run.toml", error))
    throw Failure(trouble(kExitData, "no_run", word + " is no run directory: it has no run.toml", "",
                          run_that_is_there(word, verb)));
  const fs::path real = fs::canonical(word), here = fs::current_path();
  const std::string near = real.lexically_proximate(here).string();
  return near == "." || near.starts_with("..") ? real.string() : near;
}

PlanSource source_of_run(const std::string& dir) { return {dir + "/run.toml", dir}; }

// A manifest that stands where a run left it is the run's.
PlanSource source_named(const std::string& word) {
  std::error_code error;
  const fs::path file(word), folder = file.parent_path();
  if (fs::exists(file / "run.toml", error)) return source_of_run(run_directory_at(word, "plan"));
  if (file.filename() != "run.toml") return {word, ""};
  for (const char* beside : {"status.json", "sources/command.txt"})
    if (fs::exists(folder / beside, error)) return {word, folder.empty() ? "." : folder.string()};
  return {word, ""};
}

// Who waits for a process that is dead waits for ever.
static void refuse_without_checkpoint(const std::string& dir) {
  if (!checkpoints_in(dir + "/checkpoints").empty() || is_being_trained(dir)) return;
  throw Failure(trouble(kExitData, "no_checkpoint", dir + " has no checkpoint, and no process is training it", "",
                        "mortise resume " + shell_word(dir)));
}

Verified checkpoint_of(const std::string& dir, const std::string& which) {
  refuse_without_checkpoint(dir);
  return CheckpointFolder(dir + "/checkpoints").find(which, "--checkpoint", [](const Diagnostic& d) { say(d); });
}

void with_checkpoint(const std::string& dir, const std::string& which,
                     const std::function<void(const Verified&)>& use) {
  refuse_without_checkpoint(dir);
  CheckpointFolder(dir + "/checkpoints").with(which, "--checkpoint", [](const Diagnostic& d) { say(d); }, use);
}

}  // namespace mortise::cli
