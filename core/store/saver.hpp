// Saves a run, now or while training goes on, removes what is no longer kept, and says what came of it. When to save is
// not its business. A save that does not succeed is reported, and training goes on.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/store/folder.hpp"
#include "core/store/snapshot.hpp"

namespace mortise {

// What came of one save.
struct Saved {
  int64_t step = 0, bytes = 0;
  double seconds = 0;  // of writing
  double held_s = 0;   // how long the thread that trains waited, from capture to copy, or to the end of writing
  bool background = false;
  std::string path;
  std::optional<Diagnostic> failure;  // a warning: nothing was saved, and why
};

// The best by the metric that [checkpoint] best names.
struct Best {
  double value = NAN;
  int64_t step = -1;
};

struct SaverOptions {
  std::string root;  // the folder of checkpoints; "": nothing is ever saved
  TensorFormat format;
  Retention retention;
  bool background = false;
  std::map<std::string, SavedPlugin> plugins;
  // The step of the checkpoint that the run went on from, which steps that knew to be good, and the best of them.
  int64_t resumed = -1, confirmed = -1;
  Best best;
};

// For the thread that trains.
class Saver {
 public:
  explicit Saver(SaverOptions options);
  bool can_save() const { return !options_.root.empty(); }
  // Saves what `capture` takes of the run, after the save before has ended; nothing if this step is saved already, with
  // the best that there is and not outdated. In the background it only copies; without memory for a copy, or a thread,
  // it saves at once. What `capture` throws goes through.
  void save(int64_t step, const std::function<Snapshot()>& capture);
  // For `capture`: the last snapshot that was saved in the background, whose memory may be used again.
  Snapshot& earlier() { return copies_; }
  // What is saved of this step is not all any more: it was evaluated since.
  void outdate() { is_outdated_ = true; }
  // The step after `step` was good: what was saved until then is something to go back to.
  void confirm(int64_t step);
  // What came of saves since the last call.
  std::vector<Saved> outcomes(bool wait);

  // The best that is saved, or that will be with the next save. One whose save fails is forgotten when its outcome is
  // there, and the one before it is the best again.
  const Best& best() const { return bests_.back(); }
  void set_best(const Best& best) { bests_.push_back(best); }

  int64_t last_step() const { return last_step_; }  // the newest that is saved; -1
  int64_t confirmed() const { return confirmed_; }  // steps up to this one were followed by a good one; -1
  bool has(int64_t step) const;                     // is it there?
  int64_t newest_confirmed() const;                 // the one to go back to when the run diverges; -1

 private:
  bool has_two() const;
  Saved write(const Snapshot& s, int64_t step, int64_t best_step);
  void take(Saved saved);

  SaverOptions options_;
  CheckpointFolder folder_;  // of the save under way, as long as there is one
  Snapshot copies_;
  std::vector<Saved> outcomes_;
  std::vector<Best> bests_;  // the last one that is saved, then those that may fail
  int64_t last_step_ = -1, last_best_ = -1, confirmed_ = -1;
  double held_s_ = 0;  // by the save under way
  bool is_outdated_ = false;
  bool settled_ = true;           // what may go since the last save and its confirmation is gone
  std::future<Saved> under_way_;  // destroyed first: it waits
};

}  // namespace mortise
