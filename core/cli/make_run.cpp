#include <filesystem>

#include "core/abi/edge.hpp"
#include "core/assemble/run.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"

namespace mortise::cli {

std::unique_ptr<Edge> make_host(const PointTable& points, uint64_t seed) {
  return new_host(points, seed, globals().program);
}

std::unique_ptr<Run> make_run(const Planned& p, RunRequest ask) {
  ask.manifest = &p.manifest;
  ask.plan = &p.plan;
  ask.probe = installation().probe;
  ask.program = globals().program;
  if (ask.checkpoint.path.empty() && ask.weights.empty()) ask.weights = p.weights;
  if (!ask.dir.empty()) ask.resume_command = resume_command(p, ask.dir);
  ask.warn = [](const Diagnostic& d) { say(d); };
  ask.world = world();
  if (ask.world.size > 1) ask.alike = std::string(MORTISE_VERSION) + "\n" + toml_without_origins(p.manifest, p.plan);
  const std::string checkpoint = ask.checkpoint.path;
  try {
    return std::make_unique<Run>(std::move(ask));
  } catch (const Failure& f) {
    if (!checkpoint.empty() && !std::filesystem::exists(checkpoint)) throw;  // with_checkpoint() goes on from there
    refuse_start(p, f);
  }
}

}  // namespace mortise::cli
