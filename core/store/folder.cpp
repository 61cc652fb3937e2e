#include "core/store/folder.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

[[noreturn]] void refuse(const std::string& message, const std::string& fix) {
  throw Failure(trouble(kExitData, "no_checkpoint", message, "", fix));
}

bool is_link(const std::string& path) { return fs::is_symlink(fs::symlink_status(path)); }

}  // namespace

CheckpointFolder::CheckpointFolder(std::string root, const Held& held) : root_(std::move(root)), held_(held) {}

std::optional<int64_t> CheckpointFolder::best() const {
  std::error_code error;
  const fs::path target = fs::read_symlink(root_ + "/best", error);
  if (error) return std::nullopt;
  for (const Found& found : all())
    if (fs::path(found.path).filename() == target) return found.step;
  return std::nullopt;
}

std::string CheckpointFolder::run() const { return fs::path(root_).parent_path().string(); }

// "best", "latest" or a step; of a path into this folder, what its last part says. Anything else stays as it is.
std::string CheckpointFolder::word_of(const std::string& which) const {
  fs::path path = which;
  if (!path.has_filename()) path = path.parent_path();  // "step-1200/"
  if (const fs::path parent = path.parent_path(); !parent.empty() && parent != fs::path(root_).filename()) {
    std::error_code error;
    if (fs::weakly_canonical(parent, error) != fs::weakly_canonical(root_, error)) return which;
  }
  const std::string name = path.filename().string();
  return name.starts_with(kCheckpoint) ? name.substr(kCheckpoint.size()) : name;
}

Verified CheckpointFolder::find(const std::string& which, const std::string& flag, const Told& passed_over) const {
  const std::vector<Found> there = all();
  if (there.empty()) refuse(run() + " has no checkpoint yet", "wait for the first one; [checkpoint] every says when");
  std::string wanted = word_of(which);
  const bool must_be_best = wanted == "best";
  if (which.empty() || must_be_best) {
    const std::optional<int64_t> link = best();
    if (!link && must_be_best) refuse(run() + " has no best checkpoint", flag + " latest");
    wanted = link ? std::to_string(*link) : "latest";
  }
  std::vector<std::string> steps;
  for (const Found& found : there) {
    steps.push_back(std::to_string(found.step));
    if (steps.back() == wanted) return verify_checkpoint(found);
  }
  if (wanted != "latest")
    refuse(fmt::format("{} has no checkpoint of step {}, only of {}", run(), wanted, either(steps)),
           flag + " " + steps.front());
  if (auto newest = newest_checkpoint(root_, passed_over)) return *std::move(newest);
  refuse("no checkpoint of " + run() + " is what was saved", "mortise checkpoint verify " + shell_word(run()));
}

void CheckpointFolder::with(const std::string& which, const std::string& flag, const Told& passed_over,
                            const std::function<void(const Verified&)>& use) const {
  const auto newest = [&] {
    const std::vector<Found> there = all();
    return there.empty() ? -1 : there[0].step;
  };
  for (int left = 5;; --left) {
    const int64_t before = newest();
    try {
      return use(find(which, flag, passed_over));
    } catch (const Failure&) {
      if (left == 0 || newest() == before) throw;
    }
  }
}

std::optional<Verified> CheckpointFolder::choose(const std::string& from, const Told& passed_over) const {
  if (from.empty() && all().empty()) return std::nullopt;
  return find(from.empty() ? "latest" : from, "--from", passed_over);
}

void CheckpointFolder::go_on_from(const Found& chosen) {
  remove_leftovers(root_);
  if (chosen.path.empty()) return;
  set_aside(chosen.step);
  point_at(root_, "latest", chosen.step);
  // One that led to a checkpoint which is set aside would lead to the next one of that step, whatever it is worth.
  std::error_code ignored;
  if (const std::string link = root_ + "/best"; is_link(link) && !best()) fs::remove(link, ignored);
  held_ = {.resumed = chosen.step, .confirmed = std::min(held_.confirmed, chosen.step - 1), .best = held_.best};
}

// The newest first: a process that is killed meanwhile leaves a past without holes. An older one of the same name in
// abandoned/ is replaced. When this returns nothing comes back, not even what a killed process moved before this one: a
// name that is still on its way to the disk could take away the checkpoint that is saved under it next.
void CheckpointFolder::set_aside(int64_t after) const {
  std::vector<Found> newer = all();
  std::erase_if(newer, [&](const Found& found) { return found.step <= after; });
  const std::string abandoned = root_ + "/abandoned";
  if (newer.empty() && !fs::exists(fs::symlink_status(abandoned))) return;
  make_folder(abandoned);
  if (!fs::is_directory(fs::symlink_status(abandoned)))
    throw Failure(trouble(kExitData, "no_checkpoint", abandoned + " is a link, or no folder", "",
                          "move it away: mv " + shell_word(abandoned) + " " + shell_word(abandoned + ".old")));
  remove_leftovers(abandoned);
  for (const Found& found : newer) {
    const std::string aside = abandoned + "/" + fs::path(found.path).filename().string();
    if (fs::exists(fs::symlink_status(aside))) remove_checkpoint({aside, found.step});
    rename_path(found.path, aside);
  }
  sync_folder(abandoned);
  sync_folder(root_);
}

CheckpointManifest CheckpointFolder::save(const Snapshot& s, const TensorFormat& format, int64_t step,
                                          const std::map<std::string, SavedPlugin>& plugins) {
  CheckpointWriter writer(root_, step);
  for (const auto& [file, entries] : s.tensors)
    writer.file(file + format.extension, [&](const Sink& sink) { format.write(entries, sink); });
  for (const auto& [file, text] : s.texts) writer.file(file, text);
  CheckpointManifest manifest = writer.commit(plugins);
  held_.saved = step;
  point_at(root_, "latest", step);
  return manifest;
}

void CheckpointFolder::retire(const Retention& retention, int64_t best_step) {
  if (best_step != held_.best) held_.best_before = std::exchange(held_.best, best_step);
  try {
    const std::vector<Found> there = all();
    std::vector<int64_t> steps;
    for (const Found& found : there) steps.push_back(found.step);
    // Mended here too: a process may have been killed between the save and the link.
    if (std::ranges::find(steps, best_step) != steps.end() && best() != best_step) point_at(root_, "best", best_step);
    const std::vector<int64_t> removed = steps_to_remove(steps, retention, held_);
    for (const Found& found : there)
      if (std::ranges::find(removed, found.step) != removed.end()) remove_checkpoint(found);
  } catch (const Failure&) {
  } catch (const fs::filesystem_error&) {
  }
}

void CheckpointFolder::confirm(int64_t step) { held_.confirmed = std::max(held_.confirmed, step); }

}  // namespace mortise
