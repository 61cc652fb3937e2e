// One folder a run: its name taken with mkdir, the manifest as it was resolved, the files it came from, and how it
// stands.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "core/plan/plan.hpp"
#include "core/store/folder_lock.hpp"

namespace mortise::cli {

// Every table that takes part, with every value and its source, as one TOML file that resolves to the same run from
// anywhere. Tables that the layers settled differently at some places share them out by `except`.
std::string resolved_toml(const Manifest& manifest, const Plan& plan);
// The same without where it was written.
std::string toml_without_origins(Manifest manifest, const Plan& plan);
constexpr const char* kResolvedMark = "# mortise ";  // how it begins

// The layers by name: the file first, then what lies below it; the command line last, if it says anything.
constexpr const char* kCommandLine = "command line";
std::string layers_text(const Manifest& manifest);

// Where each table and value came from, as JSON for people and for a later resume: of a run.toml that is read again,
// every source would be that file. Restored where the file still says what it said.
std::string origins_json(const Manifest& manifest);
constexpr size_t kMostOriginBytes = size_t{4} << 20;  // that are read again
void restore_origins(Manifest& manifest, std::string_view origins);

std::string utc_now();  // 2026-11-21T04:11:09Z

// run.dir, else NAME under $MORTISE_RUNS or ./runs: where a run goes on, and where it begins if nobody is there.
std::string directory_of(const Manifest& manifest);

// Its run.toml is one that a run wrote, not a manifest of a person. Throws Failure: it cannot be read.
bool is_run(const std::string& dir);

// What status.json says; nothing if it cannot be read.
struct Status {
  std::string state;
  int64_t step = 0, of = 0;
  bool resumable = false;  // it had a checkpoint, and was not finished
  bool had_saved() const { return resumable || state == "finished"; }
  int64_t ranks = 0, local_ranks = 0;  // how many it had last, and how many of them on rank 0's host; 0: not known
};
// A process holds it.
bool is_being_trained(const std::string& dir);
// There is a checkpoint in it that may be gone on from.
bool has_saved(const std::string& dir);
// It came to a step, and nothing of that was ever saved.
bool was_never_saved(const std::string& dir);
// The first of DIR-2, DIR-3, … that is not there.
std::string next_name(const std::string& dir);
std::optional<Status> status_of(const std::string& dir);

// Held by one process at a time.
class RunDirectory {
 public:
  // directory_of(); without run.dir the first free one of NAME, NAME-2, …, but NAME itself for `again`. Throws Failure:
  // it holds a run already (73), it holds anything else (64), it cannot be made. Destroyed before begin(), nothing that
  // was written stays, and no folder that was made. An empty folder, which a start that was cut short may have left, is
  // taken as it is.
  RunDirectory(const Manifest& manifest, const Plan& plan, const ManifestRequest& request, bool again = false);
  // One that holds a run, to go on with it. Throws Failure: it holds none, a file that will be written is a link or no
  // file.
  RunDirectory(std::string path, const Manifest& manifest);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  const std::string& path() const { return path_; }
  // Throws Failure (exit 74): the folder was moved or replaced. What has its name now may be another run's.
  void must_be_here() const;
  void write(const std::string& name, std::string_view text) const;
  void record(const Manifest& manifest, const Plan& plan);  // run.toml, and where its values are from
  void add_command(const std::string& command) const;       // to sources/command.txt
  void begin(int64_t step, int64_t steps);                  // status.json: running
  // Attempted so far; rewritten every two seconds at most. Throws Failure as must_be_here() does.
  void progress(int64_t step);
  void end(int exit, int64_t step);  // status.json: finished, stopped or failed

 private:
  struct Taken {
    std::string path;
    bool made;
  };
  RunDirectory(Taken taken, const Manifest& manifest);
  static Taken take(const Manifest& manifest, bool again);
  bool lock();  // true: nobody else writes there; false: nobody can tell. Throws Failure: somebody does
  bool is_here() const { return !lock_ || lock_->is_here(); }
  void must_hold_record() const;
  void write_record() const;
  void copy_sources(const Manifest& manifest, const ManifestRequest& request) const;
  void status(const std::string& state, std::optional<int> exit);

  std::string path_;
  std::string run_toml_, origins_;   // as they were written last
  Manifest manifest_;                // of which status.json copies tags and notes
  bool made_ = false, new_ = false;  // the folder; its files, which stay once the run has begun
  std::optional<FolderLock> lock_;
  int64_t steps_ = 0, step_ = 0;
  std::chrono::steady_clock::time_point written_;
};

}  // namespace mortise::cli
