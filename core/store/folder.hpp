// The folder of a run's checkpoints: which one to go on from, and which ones are of a past that was given up.
// retention.hpp says which ones may go.
//
//   step-1200/      a checkpoint (checkpoint.hpp)
//   latest, best    links to the last one saved, and to the best one: hints for people
//   abandoned/      checkpoints newer than one that a run went back to; nothing reads them
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/retention.hpp"
#include "core/store/snapshot.hpp"

namespace mortise {

// Used by one thread at a time.
class CheckpointFolder {
 public:
  using Told = std::function<void(const Diagnostic&)>;  // of each damaged one that was passed over

  // `held`: what is known of a run that goes on, if go_on_from() was called by another object.
  explicit CheckpointFolder(std::string root, const Held& held = {});
  const std::string& root() const { return root_; }
  std::vector<Found> all() const { return checkpoints_in(root_); }  // newest first
  std::optional<int64_t> best() const;                              // the step that `best` leads to, if it is there

  // By what a person calls it: "" (the best if there is one, else the newest), "best", "latest" (the newest that
  // verifies), "1200", "step-1200", or a path that ends so. Throws Failure (exit 65) with a fix for `flag`: there is no
  // such one, or it is damaged.
  Verified find(const std::string& which, const std::string& flag, const Told& passed_over) const;

  // Calls `use` with that checkpoint. A training beside this may take it away before it is read; then with the one that
  // a person would mean now, a few times.
  void with(const std::string& which, const std::string& flag, const Told& passed_over,
            const std::function<void(const Verified&)>& use) const;

  // The checkpoint to go on from: the newest that verifies, or the one that `from` calls as find() has it; nothing if
  // none was saved yet. Throws Failure (exit 65): none verifies, or not the one that was asked for.
  std::optional<Verified> choose(const std::string& from, const Told& passed_over) const;
  // Once it is restored: whatever is newer, damaged or not, is then in abandoned/, for good, and leftovers are gone.
  // Without a path: from the beginning.
  void go_on_from(const Found& chosen);

  // Saves, and points `latest` at it. When it returns, the checkpoint will be found again. Throws Failure (exit 74), or
  // what the format throws.
  CheckpointManifest save(const Snapshot& s, const TensorFormat& format, int64_t step,
                          const std::map<std::string, SavedPlugin>& plugins);
  // Removes what may go, and points `best` at the best one. What cannot be removed now goes after a later save.
  void retire(const Retention& retention, int64_t best_step);

  // The step after `step` was good, and so is what was saved at it or before. A checkpoint whose own update destroyed
  // the model has no good step after it.
  void confirm(int64_t step);

 private:
  std::string run() const;  // its directory
  std::string word_of(const std::string& which) const;
  void set_aside(int64_t after) const;

  std::string root_;
  Held held_;
};

}  // namespace mortise
