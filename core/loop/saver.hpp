// When a run is saved, and what is kept of what was saved. A save that does not succeed is told, and training goes on.
#pragma once
#include <chrono>
#include <future>
#include <optional>

#include "core/loop/lengths.hpp"
#include "core/loop/state.hpp"

namespace mortise {

struct Saved {
  int64_t step = 0, bytes = 0;
  double seconds = 0;
  bool background = false;
  std::string path;
  std::optional<Diagnostic> failure;  // nothing was saved, and why
};

// What [checkpoint] background says: on the CPU it does not save while training goes on unless asked to.
bool saves_in_background(const Run::Parts& p);

class Saver {
 public:
  explicit Saver(Run::Parts& p);
  // False without a run directory or a format: nothing is ever saved.
  bool can_save() const { return !root_.empty(); }
  bool due(int64_t step) { return can_save() && every_.due(step); }
  // Saves the run as it is between two steps. In the background it only copies, after the save before has ended.
  void save();
  // What came of saves since the last call.
  std::vector<Saved> outcomes(bool wait);
  int64_t last_step() const { return last_step_; }  // of the newest that is saved; -1

 private:
  Saved write(const Snapshot& s, int64_t step, int64_t best_step);
  void must_fit(int64_t bytes) const;
  void retire(int64_t best_step) const;
  void collect();

  Run::Parts& p_;
  std::string root_;
  Every every_;
  int64_t keep_, keep_every_ = 0;
  bool background_;
  std::map<std::string, SavedPlugin> plugins_;
  Snapshot copies_;
  std::future<Saved> under_way_;
  std::vector<Saved> outcomes_;
  int64_t last_step_ = -1;
};

}  // namespace mortise
