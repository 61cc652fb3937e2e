// One folder a run: its name taken with mkdir, the manifest as it was resolved, the files it came from, and how it stands.
#pragma once
#include <chrono>
#include <string>

#include "core/plan/plan.hpp"

namespace mortise::cli {

// Every table that takes part, with every value and its source, as one TOML file that resolves to the same run from anywhere. Tables that the layers
// settled differently at some places share them out by `except`.
std::string resolved_toml(const Manifest& manifest, const Plan& plan, const ManifestRequest& request);

// The layers by name: the file first, then what lies below it; the command line last, if it says anything.
std::string layers_text(const Manifest& manifest, const ManifestRequest& request);

std::string utc_now();  // 2026-11-21T04:11:09Z

class RunDirectory {
 public:
  // run.dir, or the first free one of NAME, NAME-2, … under $MORTISE_RUNS or ./runs. Throws Failure: it holds a run already (73), it cannot be made.
  // Destroyed before begin(), nothing of it stays.
  RunDirectory(const Manifest& manifest, const Plan& plan, const ManifestRequest& request);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  const std::string& path() const { return path_; }
  void write(const std::string& name, std::string_view text) const;
  void begin(int64_t steps);    // status.json: running
  void progress(int64_t step);  // attempted so far; rewritten every two seconds at most
  void end(int exit);           // status.json: finished, stopped or failed

 private:
  void take(const Manifest& manifest);
  void copy_sources(const Manifest& manifest, const ManifestRequest& request) const;
  void status(const std::string& state, const std::string& exit);

  std::string path_, notes_;
  bool made_ = false, begun_ = false;
  int64_t steps_ = 0, step_ = 0;
  std::chrono::steady_clock::time_point written_;
};

}  // namespace mortise::cli
