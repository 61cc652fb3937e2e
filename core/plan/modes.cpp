// Is there anything for a table's `modes` to limit?
#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// The modes in which a point is called; 0: in none, and `modes` says nothing there. Parameters are declared and updated
// for training.
unsigned modes_at(const PointTable& points, uint32_t point, bool is_wrapped) {
  constexpr unsigned kInTrain = 1, kInEval = 2;
  if (points[point].kind == Kind::Operator) return kAllModes;
  if (!is_wrapped) return point == kOptimizer || is_heard_in_training(points, point) ? kInTrain : 0;
  if (point == kForward || point == kBlock) return kAllModes;
  if (point == kLoad || point == kBatch) return kInTrain | kInEval;
  return point == kEval ? kInEval : kInTrain;
}

}  // namespace

void check_modes(const Plan& plan, const std::vector<EnabledTable>& all_enabled, Report& report) {
  for (const EnabledTable& enabled : all_enabled) {
    std::vector<std::string> names;
    unsigned possible = 0;
    const auto add = [&](const std::string& name, bool is_wrapped, unsigned modes = kAllModes) {
      const int point = plan.points.find(name);
      if (name == "*") possible = kAllModes;
      if (point < 0) return;
      possible |= modes_at(plan.points, static_cast<uint32_t>(point), is_wrapped) & modes;
      if (!contains(names, name)) names.push_back(name);
    };
    for (const std::string& name : enabled.info->schema.provides) add(name, false);
    for (const WrapInfo& wrap : enabled.info->wraps) add(wrap.point, true, modes_of(wrap));
    for (const ListenInfo& listen : enabled.info->listens) add(listen.point, false);
    if (enabled.table->modes.empty() || names.empty() || (possible & modes_of(*enabled.table))) continue;
    const std::string in = possible == 0 ? "no mode" : join(mode_names(possible), ", ") + " alone";
    report.add(refusal("matches_nothing",
                       "`modes` matches nothing: " + id_of(*enabled.info) + " attaches at " +
                           quoted(join(names, "`, `")) + ", called in " + in,
                       {enabled.table->origin}, {"leave `modes` out"}));
  }
}

}  // namespace mortise
