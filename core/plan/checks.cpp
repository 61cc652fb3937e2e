// Is what plugins say about each other true of this plan? Points exist and fit, needs are met, nobody is beside whom they cannot stand.
#include <algorithm>
#include <set>
#include <tuple>

#include "core/plan/holding.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// Without these there is no run, whatever the plugins require.
constexpr Point kNeeded[] = {kDevice, kComm, kData, kModel, kOptimizer, kReplicas};

struct Law {
  std::string verb, text;
  std::vector<Kind> kinds;
};
const Law kLaws[] = {
    {" provides ", "events and filters are listened to, nobody provides them", {Kind::Object, Kind::Call, Kind::Operator}},
    {" wraps ", "only calls and operators can be wrapped", {Kind::Call, Kind::Operator}},
    {" listens to ", "only events and filters can be listened to", {Kind::Event, Kind::Filter}},
};

constexpr const char* kKinds[] = {"an object", "a call", "an event", "a filter", "an operator"};

// Not the user's: `at` is where the plugin's author wrote it.
Diagnostic plugins_mistake(std::string code, std::string message, const Holding& holding, const Position& written, std::string fix) {
  Diagnostic d = refusal(std::move(code), std::move(message), {holding.table->origin}, {std::move(fix)});
  d.at = written ? written.text() : holding.info->toml_path;
  d.plugin = id_of(*holding.info);
  d.exit = kExitPlugin;
  return d;
}

// A plugin that would bring the operator, or "".
std::string who_would_bring(const Catalogue& catalogue, const std::string& name) {
  for (const auto& [id, info] : catalogue)
    if (std::ranges::find(info.operators, name, &OperatorRow::name) != info.operators.end()) return id;
  return "";
}

std::string nearest_point(const Plan& plan, const std::string& name) {
  const std::string near = nearest(name, plan.points.names());
  return near.empty() ? "mortise points lists them" : "it is called " + quoted(near);
}

bool has_claim(const Plan& plan, int point) { return !plan.at[point].providers.empty(); }

// Who in the catalogue would fill a need, the likeliest first: of the family of that name, stable, then by id.
std::vector<const PluginInfo*> who_would_provide(const Catalogue& catalogue, const std::string& need) {
  std::vector<const PluginInfo*> found;
  for (const auto& [id, info] : catalogue)
    if (id == need || contains(info.schema.provides, need) || contains(info.capabilities, need)) found.push_back(&info);
  std::ranges::stable_sort(found, {}, [&](const PluginInfo* info) { return std::tuple(info->schema.family != need, info->status != "stable"); });
  return found;
}

void report_missing(const std::string& need, const Holding* needed_by, const Catalogue& catalogue, Report& report) {
  Diagnostic d = refusal("nothing_provides", "nothing provides " + quoted(need));
  if (needed_by) {
    d.message += ", which " + id_of(*needed_by->info) + " needs";
    d.positions = {needed_by->table->origin};
  }
  const std::vector<const PluginInfo*> found = who_would_provide(catalogue, need);
  if (found.empty())
    d.fixes = {"no installed plugin does: mortise plugin add FILE, or --plugin-path DIR"};
  else
    d.fixes = {table_of(*found.front()) + (found.size() > 1 ? "          others: mortise plugin list " + found.front()->schema.family : "")};
  report.add(std::move(d));
}

bool is_met(const Plan& plan, const std::vector<Holding>& holdings, const std::string& need) {
  if (std::ranges::any_of(holdings, [&](const Holding& holding) { return stands_for(*holding.info, need); })) return true;
  const int point = plan.points.find(need);
  if (point < 0) return false;
  const Kind kind = plan.points[static_cast<uint32_t>(point)].kind;
  return has_claim(plan, point) || (kind != Kind::Object && kind != Kind::Operator);  // the core itself answers its calls and events
}

void check_conflict(const Holding& a, const Holding& b, const ConflictInfo& conflict, Report& report) {
  report.add(refusal("conflict", id_of(*a.info) + " and " + id_of(*b.info) + " cannot be on together: " + conflict.why,
                     {a.table->origin, b.table->origin},
                     {conflict.fix.empty() ? "leave out " + table_of(*a.info) + " or " + table_of(*b.info) : conflict.fix}));
}

}  // namespace

int find_point(const Plan& plan, const Catalogue& catalogue, const Holding& holding, Way way, const std::string& name, const Position& written,
               Report& report) {
  const Law& law = kLaws[static_cast<int>(way)];
  const std::string what = id_of(*holding.info) + law.verb + quoted(name);
  const int point = plan.points.find(name);
  if (point < 0) {
    const std::string bringer = who_would_bring(catalogue, name);
    Diagnostic d = plugins_mistake("unknown_point", what + ", which is no point", holding, written,
                                   bringer.empty() ? nearest_point(plan, name) : "[" + bringer + "] brings it");
    if (!bringer.empty()) d.exit = kExitUsage;  // the plugin is right: the manifest left it out
    report.add(std::move(d));
    return -1;
  }
  const Kind kind = plan.points[static_cast<uint32_t>(point)].kind;
  if (std::ranges::count(law.kinds, kind)) return point;
  report.add(plugins_mistake("wrong_kind", what + ", which is " + kKinds[static_cast<int>(kind)], holding, written, law.text));
  return -1;
}

void check_requirements(const Plan& plan, const std::vector<Holding>& holdings, const Catalogue& catalogue, Report& report) {
  std::set<std::string> said;
  for (const Holding& holding : holdings)
    for (const std::string& need : holding.info->requires_)
      if (!is_met(plan, holdings, need) && said.insert(need).second) report_missing(need, &holding, catalogue, report);
  for (const Point point : kNeeded)
    if (const std::string& need = plan.points[point].name; !has_claim(plan, point) && !said.contains(need))
      report_missing(need, nullptr, catalogue, report);
}

void check_conflicts(const std::vector<Holding>& holdings, Report& report) {
  std::set<std::pair<const PluginInfo*, const PluginInfo*>> said;  // once for two that name each other
  for (const Holding& a : holdings)
    for (const ConflictInfo& conflict : a.info->conflicts)
      for (const Holding& b : holdings)
        if (a.info != b.info && stands_for(*b.info, conflict.with) && (a.modes & b.modes) && said.insert(std::minmax(a.info, b.info)).second)
          check_conflict(a, b, conflict, report);
}

}  // namespace mortise
