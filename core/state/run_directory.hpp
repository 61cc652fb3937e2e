// One folder a run: its name taken with mkdir, the manifest as it was resolved, the files it came from, and how it stands.
#pragma once
#include <string>

#include "core/manifest/manifest.hpp"

namespace mortise {

// Every table with every value and its source, as TOML that resolves to the same values.
std::string resolved_toml(const Manifest& manifest);

class RunDirectory {
 public:
  // run.dir, or the first free one of NAME, NAME-2, … under $MORTISE_RUNS or ./runs. Throws Failure: it holds a run already (73), it cannot be made.
  RunDirectory(const Manifest& manifest, const ManifestRequest& request);
  const std::string& path() const { return path_; }
  void begin(int64_t steps);  // status.json: running
  void end(int exit);         // status.json: finished or stopped

 private:
  void status(const std::string& state, const std::string& exit);
  std::string path_;
  int64_t steps_ = 0;
};

}  // namespace mortise
