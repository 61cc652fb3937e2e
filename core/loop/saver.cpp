#include "core/loop/saver.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/text.hpp"
#include "core/host/error.hpp"
#include "core/loop/build.hpp"
#include "core/store/hash.hpp"

namespace mortise {
namespace {

constexpr int64_t kSlack = int64_t{1} << 20;  // manifest, folders, blocks that are not full

}  // namespace

bool saves_in_background(const Run::Parts& p) {
  const Value& stated = p.manifest.get("checkpoint", "background");
  return p.format && (stated.is_set() ? stated.as_bool() : p.device.object->kind == MORTISE_CUDA);
}

Saver::Saver(Run::Parts& p) : p_(p) {
  const Manifest& m = p.manifest;
  if (!p.request.dir.empty() && p.format) root_ = p.request.dir + "/checkpoints";
  every_ = Every(m.get("checkpoint", "every"), "checkpoint.every", p.lengths);
  keep_ = m.get("checkpoint", "keep").as_int();
  if (const Value& v = m.get("checkpoint", "keep_every"); v.is_set())
    keep_every_ = p.lengths.steps(v, "checkpoint.keep_every");
  background_ = saves_in_background(p);
  if (!can_save()) return;
  for (size_t i = 0; i < p.plan.members.size(); ++i) {
    const PluginInfo& info = *p.plan.members[i].info;
    const std::string_view loaded = p.plugins.library(static_cast<int>(i));  // what runs, whatever its file is by now
    const std::string hash = loaded.empty() ? sha256_of_file(info.library) : sha256_of(loaded.data(), loaded.size());
    plugins_[info.schema.id] = {info.version, hash};
  }
  if (!p.request.checkpoint.empty()) last_step_ = p.services.clock.applied;
}

void Saver::save() {
  const int64_t step = p_.services.clock.applied, best = p_.progress.best_step;
  if (!can_save() || step == last_step_) return;
  if (under_way_.valid()) outcomes_.push_back(under_way_.get());
  collect();
  if (step == last_step_) return;
  Snapshot s = capture(p_);
  if (!background_) {
    outcomes_.push_back(write(s, step, best));
    return collect();
  }
  copy_to_host(s, copies_);
  copies_ = std::move(s);
  under_way_ = std::async(std::launch::async, [this, step, best] {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10);  // of this thread: the step's threads come first
    return write(copies_, step, best);
  });
}

Saved Saver::write(const Snapshot& s, int64_t step, int64_t best_step) {
  Saved saved;
  const auto before = std::chrono::steady_clock::now();
  saved.step = step;
  saved.background = background_;
  saved.path = root_ + "/step-" + std::to_string(step);
  const auto not_saved = [&](const std::string& why) {
    saved.failure = trouble(kExitIo, "checkpoint_not_saved", "step " + with_commas(step) + " is not saved: " + why);
    saved.failure->level = Level::kWarning;
  };
  try {
    must_fit(s.bytes());
    saved.bytes = static_cast<int64_t>(store(s, p_.format, root_, step, plugins_).bytes());
    point_link(root_, "latest", step);
    if (best_step == step) point_link(root_, "best", step);
  } catch (const Failure& f) {
    not_saved(f.diagnostic.message);
  } catch (const PluginError& e) {
    not_saved(p_.plugins.diagnose(e).message);
  } catch (const std::exception& e) {
    not_saved(e.what());
  }
  if (!saved.failure) retire(best_step);
  saved.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  return saved;
}

// Before anything is written: a disk that is nearly full is not filled to the brim.
void Saver::must_fit(int64_t bytes) const {
  struct statvfs disk{};
  if (::statvfs(p_.request.dir.c_str(), &disk) != 0) return;  // writing will tell
  const auto room = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (room < bytes + kSlack)
    throw Failure(mistake("checkpoint_not_saved", "no space left, it needs " + byte_size(bytes) + ", " +
                                                      byte_size(room) + " free at " + p_.request.dir));
}

// The newest ones stay, the best, and one of each longer interval. What cannot be removed now is removed after a later
// save.
void Saver::retire(int64_t best_step) const {
  int64_t newest = 0;
  try {
    for (const Found& found : checkpoints_in(root_))
      if (newest++ >= keep_ && found.step != best_step && (keep_every_ == 0 || found.step % keep_every_ != 0))
        remove_checkpoint(found);
  } catch (const Failure&) {
  }
}

void Saver::collect() {
  for (const Saved& s : outcomes_)
    if (!s.failure) last_step_ = s.step;
}

std::vector<Saved> Saver::outcomes(bool wait) {
  if (under_way_.valid() && (wait || under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready))
    outcomes_.push_back(under_way_.get());
  collect();
  return std::exchange(outcomes_, {});
}

}  // namespace mortise
