// Is what plugins say about each other true of this plan? Points exist and fit, needs are met, nobody is beside whom
// they cannot stand.
#include <algorithm>
#include <set>
#include <tuple>

#include "core/manifest/check.hpp"
#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"
#include "core/plugin/plugin_info.hpp"

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
    {" provides ",
     "events and filters are listened to, nobody provides them",
     {Kind::Object, Kind::Call, Kind::Operator}},
    {" wraps ", "only calls and operators can be wrapped", {Kind::Call, Kind::Operator}},
    {" listens to ", "only events and filters can be listened to", {Kind::Event, Kind::Filter}},
};

constexpr const char* kKinds[] = {"an object", "a call", "an event", "a filter", "an operator"};

// A plugin that defines the operator, or "".
std::string plugin_defining(const Catalogue& catalogue, const std::string& name) {
  for (const auto& [id, info] : catalogue)
    if (std::ranges::find(info.operators, name, &OperatorRow::name) != info.operators.end()) return id;
  return "";
}

// Tables of one family that would fill a need, the likeliest first: of the family of that name, who can be part of this
// run, whom the command line does not refuse, who reads a file that lies beside the weights, if there are any, stable,
// then by id. Who cannot be part of it is named where nobody can.
std::vector<std::string> who_would_provide(const Plan& plan, const std::string& need, const Sources& sources) {
  const auto& tables_of_core = sources.manifest.tables;
  const auto model = tables_of_core.find("model");
  const bool has_weights =
      model != tables_of_core.end() && model->second.contains("weights") && model->second.at("weights").is_set();
  const auto is_able = [&](const PluginInfo* info) {
    return sources.reason_against(*info).empty() && other_devices(*info, plan).empty();
  };
  std::vector<const PluginInfo*> found;
  for (const auto& [id, info] : sources.catalogue)
    if (stands_for(info, need) || contains(info.schema.provides, need)) found.push_back(&info);
  std::ranges::stable_sort(found, {}, [&](const PluginInfo* info) {
    return std::tuple(info->schema.family != need, !is_able(info), sources.manifest.refused.contains(id_of(*info)),
                      has_weights && !fact_of(*info, need, "path"), info->status != "stable");
  });
  std::vector<std::string> tables;
  for (const PluginInfo* info : found)
    if (info->schema.family == found.front()->schema.family && is_able(info) == is_able(found.front()))
      tables.push_back(in_place(table_of(*info), id_of(*info), sources.manifest));
  return tables;
}

void report_missing(const std::string& need, const EnabledTable* needed_by, const Plan& plan, const Sources& sources,
                    Report& report) {
  const std::vector<std::string> found = who_would_provide(plan, need, sources);
  Diagnostic d =
      refusal("nothing_provides",
              "nothing provides " + quoted(need) + (needed_by ? ", which " + id_of(*needed_by->info) + " needs" : ""),
              {needed_by ? needed_by->table->origin : Position{}},
              {found.empty() ? "no installed plugin does; --plugin-path DIR names a further folder with plugins"
                             : either(found)});
  d.about = need;
  if (found.size() > 1) d.see = "mortise plugin list " + found.front().substr(1, found.front().find('.') - 1);
  report.add(std::move(d));
}

bool is_met(const Plan& plan, const std::vector<EnabledTable>& all_enabled, const std::string& need) {
  if (std::ranges::any_of(all_enabled, [&](const EnabledTable& enabled) { return stands_for(*enabled.info, need); }))
    return true;
  const int point = plan.points.find(need);
  if (point < 0) return false;
  const Kind kind = plan.points[point].kind;
  return !plan.at[point].providers.empty() ||
         (kind != Kind::Object && kind != Kind::Operator);  // the core itself answers its calls and events
}

// `capture = true` speaks of `step` being recorded, and only what is inside it can be.
void check_capture(const EnabledTable& enabled, const PointRow& row, bool capture, const Position& written,
                   Report& report) {
  if (capture && !row.is_inside_step())
    report.add(plugins_mistake(
        "capture_outside_step",
        id_of(*enabled.info) + " says `capture` at " + quoted(row.name) + ", which is not inside `step`", enabled,
        written, "leave `capture` out there"));
}

}  // namespace

Diagnostic plugins_mistake(std::string code, std::string message, const EnabledTable& enabled, const Position& written,
                           std::string fix) {
  Diagnostic d = refusal(std::move(code), std::move(message), {enabled.table->origin}, {std::move(fix)});
  d.at = written ? written.text() : enabled.info->toml_path;
  d.plugin = id_of(*enabled.info);
  d.exit = kExitPlugin;
  return d;
}

std::string nearest_point(const Plan& plan, const std::string& name) {
  const std::string near = nearest(name, plan.points.names());
  return near.empty() ? "mortise points lists them" : "it is called " + quoted(near);
}

void check_listener(const EnabledTable& enabled, const PointRow& row, const ListenInfo& listen, Report& report) {
  const std::vector<std::string> fields = row.writable();
  const auto is_field = [&](const std::string& field) {
    return contains(fields, field) || (field.starts_with("place.") && contains(fields, "place.AXIS"));
  };
  for (const std::string& field : listen.writes)
    if (!is_field(field))
      report.add(plugins_mistake(
          "unknown_field",
          id_of(*enabled.info) + " writes " + quoted(field) + " at " + quoted(row.name) + ", which has no such field",
          enabled, listen.origin,
          fields.empty() ? "nothing is written there: leave `writes` out" : "its fields: " + join(fields, ", ")));
  if (row.kind == Kind::Filter && listen.writes.empty() && listen.reads.empty())
    report.add(plugins_mistake(
        "writes_missing", id_of(*enabled.info) + " listens to the filter " + quoted(row.name) + " and writes nothing",
        enabled, listen.origin, "writes = [\"" + join(fields, "\", \"") + "\"], or reads, if it only looks"));
  if (listen.everywhere && row.name != "params.declared")
    report.add(plugins_mistake("needless_everywhere",
                               id_of(*enabled.info) + " says `everywhere` at " + quoted(row.name) +
                                   ", where no `where` narrows what a listener is told",
                               enabled, listen.origin, "leave `everywhere` out there"));
  check_capture(enabled, row, listen.capture, listen.origin, report);
}

bool check_wrapper(const EnabledTable& enabled, const PointRow& row, const WrapInfo& wrap, Report& report) {
  check_capture(enabled, row, wrap.capture, wrap.origin, report);
  if (std::ranges::find(kBands, wrap.band) != std::end(kBands)) return true;
  report.add(plugins_mistake(
      "unknown_band",
      id_of(*enabled.info) + " wraps " + quoted(row.name) + " in " + quoted(wrap.band) + ", which is no band", enabled,
      wrap.origin, "one of " + join({std::begin(kBands), std::end(kBands)}, ", ")));
  return false;
}

bool check_watcher(const EnabledTable& enabled, const WrapInfo& wrap, Report& report) {
  if (wrap.band == "watch" && !wrap.capture) return true;
  report.add(plugins_mistake("wrong_kind",
                             id_of(*enabled.info) + " wraps `*`, every call, " +
                                 (wrap.capture ? "and says `capture`" : "in " + quoted(wrap.band)),
                             enabled, wrap.origin,
                             wrap.capture ? "leave `capture` out there: not every call is inside `step`"
                                          : "band = \"watch\": who changes something names the points"));
  return false;
}

int find_point(const Plan& plan, const Catalogue& catalogue, const EnabledTable& enabled, Way way,
               const std::string& name, const Position& written, Report& report) {
  const Law& law = kLaws[static_cast<int>(way)];
  const std::string what = id_of(*enabled.info) + law.verb + quoted(name);
  const int point = plan.points.find(name);
  if (point < 0) {
    const std::string bringer = plugin_defining(catalogue, name);
    Diagnostic d = plugins_mistake("unknown_point", what + ", which is no point", enabled, written,
                                   bringer.empty() ? nearest_point(plan, name) : "[" + bringer + "] brings it");
    if (!bringer.empty()) d.exit = kExitUsage;  // the plugin is right: the manifest left it out
    report.add(std::move(d));
    return -1;
  }
  const Kind kind = plan.points[point].kind;
  if (std::ranges::count(law.kinds, kind)) return point;
  report.add(
      plugins_mistake("wrong_kind", what + ", which is " + kKinds[static_cast<int>(kind)], enabled, written, law.text));
  return -1;
}

void check_requirements(const Plan& plan, const std::vector<EnabledTable>& all_enabled, const Sources& sources,
                        Report& report) {
  std::set<std::string> said;
  for (const EnabledTable& enabled : all_enabled)
    for (const std::string& need : enabled.info->requires_)
      if (!is_met(plan, all_enabled, need) && said.insert(need).second)
        report_missing(need, &enabled, plan, sources, report);
  for (const Point point : kNeeded)
    if (const std::string& need = plan.points[point].name; plan.at[point].providers.empty() && !said.contains(need))
      report_missing(need, nullptr, plan, sources, report);
}

void check_validation(const Manifest& manifest, const std::vector<EnabledTable>& all_enabled, Report& report) {
  const auto data = manifest.tables.find("data");
  if (data == manifest.tables.end() || !data->second.contains("validation")) return;
  const Value& share = data->second.at("validation");
  if (!share.is_set() || share.as_float() == 0) return;
  for (const EnabledTable& enabled : all_enabled) {
    const Value* key = fact_of(*enabled.info, "data", "validation");
    const auto files = key ? enabled.table->values.find(key->as_text()) : enabled.table->values.end();
    if (files == enabled.table->values.end() || !files->second.is_set()) continue;
    report.add(as_warning(refusal("validation_unused",
                                  "data.validation holds nothing out: " + id_of(*enabled.info) +
                                      " has files of its own in `" + key->as_text() + "`",
                                  {share.origin, files->second.origin}, {"leave one of them out"})));
  }
}

void check_sampled(const Plan& plan, Report& report) {
  const std::vector<Claim>&models = plan.at[kModel].providers, &samplers = plan.at[kSample].providers;
  if (models.empty() || samplers.empty()) return;
  const PluginInfo& model = info_of(plan, models.back().member);
  const Value* modes = fact_of(model, "model", "modes");
  if (!modes || contains(modes->as_texts(), "sample")) return;
  report.add(refusal("cannot_sample",
                     id_of(model) + " gives no logits of a next token: " + id_of(plan, samplers.back().member) +
                         " cannot go on with a text",
                     {samplers.back().origin}, {"leave it out: `mortise eval DIR` measures the model"}));
}

void check_names(const Plan& plan, const std::vector<EnabledTable>& all_enabled, const Catalogue& catalogue,
                 Report& report) {
  std::vector<std::string> operators;
  for (uint32_t i = 0; i < plan.points.size(); ++i)
    if (plan.points[i].kind == Kind::Operator) operators.push_back(plan.points[i].name);
  for (const EnabledTable& enabled : all_enabled) {
    const Value* key = fact_of(*enabled.info, "names", "operators");
    const auto names = key ? enabled.table->values.find(key->as_text()) : enabled.table->values.end();
    if (names == enabled.table->values.end() || !names->second.is_set()) continue;
    for (const Value& name : names->second.as_list()) {
      if (contains(operators, name.as_text())) continue;
      const std::string near = nearest(name.as_text(), operators), bringer = plugin_defining(catalogue, name.as_text());
      report.add(refusal("unknown_point",
                         id_of(*enabled.info) + "." + key->as_text() + " names operators, and " +
                             quoted(name.as_text()) + " is none of this run",
                         {name.origin},
                         {!bringer.empty() ? "[" + bringer + "] brings it"
                          : near.empty()   ? "operators of this run: " + join(operators, ", ")
                                           : assignment(name.origin, "[\"" + near + "\"]")}));
    }
  }
}

void check_conflicts(const std::vector<EnabledTable>& all_enabled, Report& report) {
  std::set<std::pair<const PluginInfo*, const PluginInfo*>> said;  // once for two that name each other
  for (const EnabledTable& a : all_enabled)
    for (const ConflictInfo& conflict : a.info->conflicts)
      for (const EnabledTable& b : all_enabled)
        if (a.info != b.info && stands_for(*b.info, conflict.with) && (a.modes & b.modes) &&
            said.insert(std::minmax(a.info, b.info)).second)
          report.add(refusal(
              "conflict", id_of(*a.info) + " and " + id_of(*b.info) + " cannot be on together: " + conflict.why,
              {a.table->origin, b.table->origin},
              {conflict.fix.empty()
                   ? "leave out " + as_written(*a.info, a.table->origin) + " or " + as_written(*b.info, b.table->origin)
                   : conflict.fix}));
}

}  // namespace mortise
