// What to do where a plugin cannot be part of the run: it cannot start on this machine, or its bits differ and must
// not, or it is a device that somebody of the run does not work on. The table's own `fallback`, or an error. Nothing is
// replaced that nobody wrote.
#include <algorithm>
#include <set>

#include "core/plan/enabled_table.hpp"
#include "core/plan/facts.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// Why its bits differ, where they must not; "" if they may, or repeat.
std::string why_unrepeatable(const Plan& plan, const PluginInfo& info) {
  return plan.repeats ? why_bits_differ(plan, info) : "";
}

bool can_take_part(const Plan& plan, const Sources& sources, const PluginInfo& info) {
  return sources.reason_against(info).empty() && why_unrepeatable(plan, info).empty();
}

bool provides_all(const PluginInfo& info, const std::vector<Slot>& slots) {
  return std::ranges::all_of(slots, [&](const Slot& slot) { return contains(info.schema.provides, slot.point); });
}

void keep_out(Plan& plan, const PluginInfo& info, const std::string& why) {
  const std::string text = id_of(info) + " (" + why + ")";
  if (!contains(plan.kept_out, text)) plan.kept_out.push_back(text);
}

// Also as long as it is not needed: another machine may need it.
void check_fallback(const EnabledTable& enabled, const Sources& sources, Report& report) {
  for (const std::string& id : enabled.table->fallback)
    if (const auto found = sources.catalogue.find(id);
        found != sources.catalogue.end() && !provides_all(found->second, enabled.slots))
      report.add(refusal("wrong_fallback",
                         id_of(*enabled.info) + " falls back to " + id + ", which does not provide `" +
                             enabled.slots.front().point + "`",
                         {enabled.table->origin},
                         {"name another: mortise plugin list " + enabled.info->schema.family}));
}

// The first of `ids` that is installed, fills the same slots, can be part of the run and works on its device; the first
// of the others if none does. Who fills no slot has nobody.
const PluginInfo* first_stand_in(const Plan& plan, const EnabledTable& enabled, const std::vector<std::string>& ids,
                                 const Sources& sources) {
  const PluginInfo* elsewhere = nullptr;
  if (enabled.slots.empty()) return nullptr;
  for (const std::string& id : ids) {
    const auto found = sources.catalogue.find(id);
    if (found == sources.catalogue.end()) continue;
    if (!provides_all(found->second, enabled.slots) || !can_take_part(plan, sources, found->second)) continue;
    if (other_devices(found->second, plan).empty()) return &found->second;
    if (!elsewhere) elsewhere = &found->second;
  }
  return elsewhere;
}

void report_unavailable(const EnabledTable& enabled, std::string code, const std::string& what, std::string fix,
                        Report& report) {
  Diagnostic d = refusal(std::move(code), id_of(*enabled.info) + what, {enabled.table->origin}, {std::move(fix)});
  d.plugin = id_of(*enabled.info);
  d.exit = kExitUnavailable;
  report.add(std::move(d));
}

// Another of the same slots that can be part of the run; one that the command line refuses if there is no other; NULL.
const PluginInfo* another_for(const Plan& plan, const EnabledTable& enabled, const Sources& sources) {
  const PluginInfo* refused = nullptr;
  for (const auto& [id, info] : sources.catalogue) {
    if (enabled.slots.empty() || !provides_all(info, enabled.slots) || !other_devices(info, plan).empty() ||
        !can_take_part(plan, sources, info))
      continue;
    if (!sources.manifest.refused.contains(id)) return &info;
    if (!refused) refused = &info;
  }
  return refused;
}

// What to write instead of what cannot be part of the run.
std::string instead_of(const EnabledTable& enabled, const PluginInfo* another, const Manifest& manifest) {
  const Position& origin = enabled.table->origin;
  if (!enabled.leave_out.empty()) return enabled.leave_out;
  if (another) return in_place("--use " + id_of(*another), id_of(*another), manifest, origin);
  return origin.typed().empty() ? "--without " + id_of(*enabled.info) : "leave out " + origin.typed();
}

// How a fallback that is switched off comes back.
std::string to_have(const std::string& id, const Manifest& manifest) {
  if (const auto by = manifest.refused.find(id); by != manifest.refused.end()) return "leave out " + by->second;
  const auto table = std::ranges::find(manifest.plugins, id, [](const PluginTable& t) { return t.schema->id; });
  return "leave out `enabled = false` of [" + id + "] (" + short_text(table->origin) + ")";
}

// "; of its table nothing is taken: betas, lr": what was written in a table whose place another takes.
std::string left_out(const EnabledTable& enabled) {
  const PluginTable& table = *enabled.table;
  std::vector<std::string> keys;
  for (const auto& [key, value] : table.values)
    if (value.is_set() && value.origin.file != table.schema->config.keys.at(key).default_value.origin.file)
      keys.push_back(key);
  return keys.empty() ? "" : "; of its table nothing is taken: " + join(keys, ", ");
}

bool is_device(const Plan& plan, const EnabledTable& enabled) {
  return std::ranges::find(enabled.slots, plan.points[kDevice].name, &Slot::point) != enabled.slots.end();
}

// `unwanted`: why it is not to be taken although it could; "": it may be.
void put_stand_in(Plan& plan, EnabledTable& enabled, const Sources& sources, const std::string& unwanted,
                  Report& report) {
  const std::string reason = sources.reason_against(*enabled.info);
  const std::string differs = reason.empty() ? why_unrepeatable(plan, *enabled.info) : "";
  check_fallback(enabled, sources, report);
  if (reason.empty() && differs.empty() && unwanted.empty()) return;
  const auto* other = first_stand_in(plan, enabled, enabled.table->fallback, sources);
  const auto* off = first_stand_in(plan, enabled, enabled.table->off, sources);
  const bool is_served = other && other_devices(*other, plan).empty();
  if (off && !is_served && other_devices(*off, plan).empty())
    enabled.leave_out = to_have(id_of(*off), sources.manifest);
  const std::string not_again = " does not give the same bits in every run: " + differs;
  if (other) {
    enabled.why = id_of(*enabled.info) +
                  (!reason.empty()    ? " cannot run here: " + reason
                   : !differs.empty() ? not_again
                                      : " is not taken: " + unwanted) +
                  "; fallback of " + short_text(enabled.table->origin) + left_out(enabled);
    if (!differs.empty()) keep_out(plan, *enabled.info, differs);
    enabled.info = other;
    enabled.stands_in = true;
    return;
  }
  if (reason.empty() && differs.empty()) return;  // then who does not work there is refused
  const PluginInfo* another = enabled.leave_out.empty() ? another_for(plan, enabled, sources) : off;
  const std::string instead = instead_of(enabled, another, sources.manifest);
  if (differs.empty()) report_unavailable(enabled, "device_unusable", " cannot run: " + reason, instead, report);
  else
    report.add(refusal("not_repeatable", id_of(*enabled.info) + not_again,
                       {plan.repeats->origin, enabled.table->origin}, {instead, "deterministic = false"}));
  // What else is wrong is wrong on the device that is proposed.
  if (another && is_device(plan, enabled)) enabled.info = another;
}

// The device first: who repeats, and who works, depends on it.
void put_all(Plan& plan, std::vector<EnabledTable>& all_enabled, const Sources& sources,
             const std::string& unwanted_device, Report& report) {
  for (EnabledTable& enabled : all_enabled) {
    if (!is_device(plan, enabled)) continue;
    put_stand_in(plan, enabled, sources, unwanted_device, report);
    plan.device = device_kind(*enabled.info);
  }
  plan.updates_on = {plan.device};
  if (const EnabledTable* updater = host_updater(all_enabled); updater && plan.device != "cpu") {
    if (!updater->table->where) plan.updates_on.clear();  // of all of them
    plan.updates_on.push_back("cpu");
  }
  for (EnabledTable& enabled : all_enabled)
    if (!is_device(plan, enabled)) put_stand_in(plan, enabled, sources, "", report);
}

// Who does not work on a device that has a `fallback` left, and so is not what the run asks for before all else; "" if
// all do.
std::string against_device(const Plan& plan, const std::vector<EnabledTable>& all_enabled) {
  const auto may_give_way = [&](const EnabledTable& each) {
    return is_device(plan, each) && !each.stands_in && !each.table->fallback.empty();
  };
  if (std::ranges::none_of(all_enabled, may_give_way)) return "";
  for (const EnabledTable& each : all_enabled)
    if (const auto others = other_devices(*each.info, plan); !others.empty())
      return id_of(*each.info) + " works on " + either(others);
  return "";
}

}  // namespace

void put_stand_ins(Plan& plan, std::vector<EnabledTable>& all_enabled, const Sources& sources, Report& report) {
  const std::vector<EnabledTable> written = all_enabled;
  Report found;
  put_all(plan, all_enabled, sources, "", found);
  if (const std::string why = against_device(plan, all_enabled); !why.empty()) {
    all_enabled = written;
    plan.kept_out.clear();
    found = {};
    put_all(plan, all_enabled, sources, why, found);
  }
  for (const Diagnostic& d : found.all()) report.add(d);
}

void gather_choices(Plan& plan, std::vector<EnabledTable>& all_enabled, const Sources& sources, Report& report) {
  std::set<std::string> off;
  for (const PluginTable& table : sources.manifest.plugins)
    if (table.schema && !table.enabled) off.insert(table.schema->id);
  for (EnabledTable& enabled : all_enabled)
    for (Slot& slot : enabled.slots) {
      for (const std::string& id : enabled.info->chooses) {
        const auto found = sources.catalogue.find(id);
        if (found == sources.catalogue.end() || off.contains(id) ||
            !contains(found->second.schema.provides, slot.point))
          continue;
        if (!sources.reason_against(found->second).empty()) continue;
        if (const std::string why = why_unrepeatable(plan, found->second); !why.empty())
          keep_out(plan, found->second, why);
        else slot.choices.push_back(&found->second);
      }
      if (slot.choices.empty() && !enabled.info->chooses.empty())
        report_unavailable(
            enabled, "nothing_to_choose", " has nothing to choose from for " + quoted(slot.point),
            "none of " + join(enabled.info->chooses, ", ") + " is installed, on and able to run here" +
                (plan.kept_out.empty() ? "" : "; out for run.deterministic: " + join(plan.kept_out, ", ")),
            report);
    }
}

}  // namespace mortise
