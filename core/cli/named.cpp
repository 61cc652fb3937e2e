// What a person names: a run directory, a manifest, a checkpoint.
#include <filesystem>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/store/folder.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {

std::string run_directory_at(const std::string& word, const std::string& verb) {
  std::error_code error;
  if (!fs::exists(fs::path(word) / "run.toml", error))
    throw Failure(trouble(kExitData, "no_run", word + " is no run directory: it has no run.toml", "",
                          "mortise " + verb + " runs/latest"));
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

Verified checkpoint_of(const std::string& dir, const std::string& which) {
  return CheckpointFolder(dir + "/checkpoints").find(which, "--checkpoint", [](const Diagnostic& d) { say(d); });
}

void with_checkpoint(const std::string& dir, const std::string& which,
                     const std::function<void(const Verified&)>& use) {
  CheckpointFolder(dir + "/checkpoints").with(which, "--checkpoint", [](const Diagnostic& d) { say(d); }, use);
}

}  // namespace mortise::cli
