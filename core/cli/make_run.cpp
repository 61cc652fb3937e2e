#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/loop/run.hpp"

namespace mortise::cli {

std::unique_ptr<Run> make_run(const Planned& p, RunRequest ask) {
  ask.manifest = &p.manifest;
  ask.plan = &p.plan;
  ask.probe = installation().probe;
  if (ask.checkpoint.empty() && ask.weights.empty()) ask.weights = p.weights;
  ask.warn = [](const Diagnostic& d) { say(d); };
  try {
    return std::make_unique<Run>(std::move(ask));
  } catch (const Failure& f) {
    Diagnostic d = f.diagnostic;
    const bool of_weights = !p.weights.empty() && (d.at.starts_with(p.weights) || d.code == "matches_nothing");
    if (d.positions.empty() && of_weights)
      d.positions = {p.manifest.get("model", d.code == "matches_nothing" ? "new" : "weights").origin};
    Report one;
    one.add(d);
    say(one, "nothing was started.");
    throw Failed{f.diagnostic.exit};
  }
}

}  // namespace mortise::cli
