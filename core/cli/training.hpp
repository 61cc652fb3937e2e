// What `train` and `resume` share: a plan, a run directory, and the way from there to an exit code.
#pragma once
#include <functional>

#include "core/assemble/changes.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"

namespace mortise::cli {

// What a run is, and how it is shown: --json and -q are shipped layers above it that are not recorded.
struct Session {
  std::unique_ptr<Planned> run, output;
  const Planned& shown() const { return output ? *output : *run; }
};
Session make_session(const Arguments& args, PlanSource source);

// Trains in the directory to the end, a signal or run.time_limit; from the folder of a checkpoint, or from the
// beginning. `changes`: of the values of a run that goes on. `restored` is called once the run is assembled and
// restored, before anything of it is written.
int train_in(
    RunDirectory& directory, const Session& session, const Found& checkpoint, const std::vector<Change>& changes = {},
    const std::function<void()>& restored = [] {});

// The same of a rank that is not the first: it writes nothing, and goes on from where the first does.
int train_along(const Session& session);

// A run that is at `step` cannot become shorter; `least`: the length to propose. Throws Failure.
[[noreturn]] void refuse_length(int64_t step, int64_t steps, int64_t least, const Manifest& manifest);

// A manifest as it is once it was written to a run directory: what run.toml is compared with.
Manifest recorded(const Planned& p);

// `train --resume` where the run directory of the manifest holds a run.
int resume_manifest(const Arguments& args, const std::string& dir, const Session& session);

}  // namespace mortise::cli
