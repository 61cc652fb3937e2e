// What to do on a machine where a plugin cannot run: the table's own `fallback`, or an error. Nothing is replaced that
// nobody wrote.
#include <algorithm>
#include <set>

#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// "" if it can start.
std::string reason_against(CanStart can_start, const PluginInfo& info) { return can_start ? can_start(info) : ""; }

bool provides_all(const PluginInfo& info, const std::vector<Slot>& slots) {
  return std::ranges::all_of(slots, [&](const Slot& slot) { return contains(info.schema.provides, slot.point); });
}

// The first that is installed, fills the same slots and can start.
const PluginInfo* first_stand_in(const EnabledTable& enabled, const Catalogue& catalogue, CanStart can_start,
                                 Report& report) {
  for (const std::string& id : enabled.table->fallback) {
    const auto found = catalogue.find(id);
    if (found == catalogue.end()) continue;
    if (!provides_all(found->second, enabled.slots)) {
      report.add(refusal("wrong_fallback",
                         id_of(*enabled.info) + " falls back to " + id + ", which does not provide `" +
                             enabled.slots.front().point + "`",
                         {enabled.table->origin},
                         {"name another: mortise plugin list " + enabled.info->schema.family}));
    } else if (reason_against(can_start, found->second).empty()) {
      return &found->second;
    }
  }
  return nullptr;
}

void report_unavailable(const EnabledTable& enabled, std::string code, const std::string& what, std::string fix,
                        Report& report) {
  Diagnostic d = refusal(std::move(code), id_of(*enabled.info) + what, {enabled.table->origin}, {std::move(fix)});
  d.plugin = id_of(*enabled.info);
  d.exit = kExitUnavailable;
  report.add(std::move(d));
}

// What to write instead: another of the same slots that can run here.
std::string instead_of(const EnabledTable& enabled, const Catalogue& catalogue, CanStart can_start) {
  if (!enabled.slots.empty())
    for (const auto& [id, info] : catalogue)
      if (provides_all(info, enabled.slots) && reason_against(can_start, info).empty()) return "--use " + id;
  return "--without " + id_of(*enabled.info);
}

}  // namespace

void put_stand_ins(std::vector<EnabledTable>& all_enabled, const Catalogue& catalogue, CanStart can_start,
                   Report& report) {
  for (EnabledTable& enabled : all_enabled) {
    const std::string reason = reason_against(can_start, *enabled.info);
    if (reason.empty()) continue;
    const PluginInfo* other = enabled.slots.empty() ? nullptr : first_stand_in(enabled, catalogue, can_start, report);
    if (!other) {
      report_unavailable(enabled, "device_unusable", " cannot run: " + reason,
                         instead_of(enabled, catalogue, can_start), report);
      continue;
    }
    enabled.why =
        id_of(*enabled.info) + " cannot run here: " + reason + "; fallback of " + short_text(enabled.table->origin);
    enabled.info = other;
    enabled.stands_in = true;
  }
}

void gather_choices(std::vector<EnabledTable>& all_enabled, const Manifest& manifest, const Catalogue& catalogue,
                    CanStart can_start, Report& report) {
  std::set<std::string> off;
  for (const PluginTable& table : manifest.plugins)
    if (table.schema && !table.enabled) off.insert(table.schema->id);
  for (EnabledTable& enabled : all_enabled)
    for (Slot& slot : enabled.slots) {
      for (const std::string& id : enabled.info->chooses) {
        const auto found = catalogue.find(id);
        if (found == catalogue.end() || off.contains(id) || !contains(found->second.schema.provides, slot.point))
          continue;
        if (reason_against(can_start, found->second).empty()) slot.choices.push_back(&found->second);
      }
      if (slot.choices.empty() && !enabled.info->chooses.empty())
        report_unavailable(enabled, "nothing_to_choose", " has nothing to choose from for " + quoted(slot.point),
                           "none of " + join(enabled.info->chooses, ", ") + " is installed, on and able to run here",
                           report);
    }
}

}  // namespace mortise
