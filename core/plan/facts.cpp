// What plugin.toml says of its plugin besides where it attaches: devices, cuts, waiting, covered points, recording.
#include "core/plan/facts.hpp"

#include <algorithm>

#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// A text, or a list of texts.
std::vector<std::string> texts_in(const Value& value) {
  std::vector<std::string> texts;
  if (const auto* one = std::get_if<std::string>(&value.data)) texts = {*one};
  if (const auto* list = std::get_if<std::vector<Value>>(&value.data))
    for (const Value& each : *list)
      if (const auto* text = std::get_if<std::string>(&each.data)) texts.push_back(*text);
  return texts;
}

// ---- devices ----

void refuse_device(const EnabledTable& enabled, const std::vector<std::string>& names, const std::string& works,
                   const Claim& claim, const PluginInfo& device, const Sources& sources, Report& report) {
  std::vector<std::string> uses;
  for (const std::string& name : names) {
    const std::string id = "device." + name;
    const auto found = sources.catalogue.find(id);
    if (found != sources.catalogue.end() && sources.reason_against(found->second).empty())
      uses.push_back(in_place("--use " + id, id, sources.manifest, claim.origin));
  }
  // A run does without what provides nothing.
  const std::string another = !enabled.leave_out.empty() ? enabled.leave_out
                              : enabled.info->schema.provides.empty()
                                  ? "leave out " + as_written(*enabled.info, enabled.table->origin)
                                  : "another plugin: mortise plugin list " + enabled.info->schema.family;
  Diagnostic d =
      refusal("wrong_device",
              works + either(names) + ", this run on " + id_of(device) + (claim.stands_in ? ": " + claim.why : ""),
              {enabled.table->origin, claim.origin},
              {uses.empty() || claim.stands_in ? another : either(uses) + ", or " + another});
  d.plugin = id_of(*enabled.info);
  d.exit = kExitUnavailable;
  report.add(std::move(d));
}

// It works where the run is, and not on the host's processor, where its update is to be.
void refuse_host(const EnabledTable& enabled, const std::vector<std::string>& names,
                 const std::vector<EnabledTable>& all_enabled, Report& report) {
  const EnabledTable& updater = *host_updater(all_enabled);
  const std::string& id = id_of(*updater.info);
  Diagnostic d = refusal("wrong_device",
                         id_of(*enabled.info) + " works on " + either(names) + ", and " + id +
                             " has updates computed on the host's processor",
                         {enabled.table->origin, updater.table->origin},
                         {"leave out " + as_written(*updater.info, updater.table->origin) +
                          ", or another plugin: mortise plugin list " + enabled.info->schema.family});
  d.plugin = id_of(*enabled.info);
  d.exit = kExitUnavailable;
  report.add(std::move(d));
}

// Of those to choose from only who works on the device; where nobody does, what they ask for.
std::vector<std::string> leave_able(const Plan& plan, std::vector<int>& choices) {
  std::vector<std::string> asked;
  std::erase_if(choices, [&](int choice) {
    const std::vector<std::string> names = other_devices(info_of(plan, choice), plan);
    asked.insert(asked.end(), names.begin(), names.end());
    return !names.empty();
  });
  return choices.empty() ? asked : std::vector<std::string>();
}

// ---- cutting, waiting, covering ----

void check_cut(const EnabledTable& enabled, Report& report) {
  const Value* cut = fact_of(*enabled.info, "optimizer", "cut");
  const std::vector<std::string> said = cut ? texts_in(*cut) : std::vector<std::string>{"element"};
  const std::string how = said.empty() ? "" : said[0];
  const bool blocks = how.starts_with("block:") && how.size() > 6 && how.size() < 16 && how[6] != '0' &&
                      how.find_first_not_of("0123456789", 6) == std::string::npos;
  if (said.size() == 1 && (blocks || contains({"element", "rows", "tensor"}, how))) return;
  report.add(plugins_mistake("not_a_choice", "optimizer.cut of " + id_of(*enabled.info) + " is no way to cut a tensor",
                             enabled, cut->origin, "\"element\", \"block:256\", \"rows\" or \"tensor\""));
}

void check_workspaces(const EnabledTable& enabled, Report& report) {
  const Value* stated = fact_of(*enabled.info, "memory", "workspaces");
  if (stated && mebibytes_in(stated->as_text()) == 0)
    report.add(plugins_mistake("not_a_choice", "memory.workspaces of " + id_of(*enabled.info) + " is no number of MiB",
                               enabled, stated->origin, "\"64 MiB\""));
}

void check_covers(const Plan& plan, const EnabledTable& enabled, Report& report) {
  for (const auto& [slot, facts] : enabled.info->facts)
    for (const std::string& covered : covered_by(*enabled.info, slot)) {
      const int point = plan.points.find(covered);
      if (point >= 0 && plan.points[static_cast<uint32_t>(point)].kind == Kind::Operator && covered != slot) continue;
      report.add(plugins_mistake("unknown_point",
                                 id_of(*enabled.info) + " covers " + quoted(covered) +
                                     (covered == slot ? ", which it provides" : ", which is no operator of this run"),
                                 enabled, facts.at("covers").origin, nearest_point(plan, covered)));
    }
}

// ---- recording ----

// Is a call of `point` made inside one of `outer`? Both are inside `step`; rows stand as they nest.
bool is_within(const PointTable& points, uint32_t point, uint32_t outer) {
  if (points[point].stage == Stage::Update) return outer == kStep;
  if (points[point].kind == Kind::Operator) return outer <= kBlock;
  return point > outer && (point != kBackward || outer <= kMicro);
}

// Why a plugin cannot be recorded by who records `outer`; "": it can, or is not inside.
std::string unrecordable(const Plan& plan, const PluginInfo& info, uint32_t outer) {
  const auto index = [&](const std::string& name) { return static_cast<uint32_t>(plan.points.find(name)); };
  const auto inside = [&](const std::string& name) {
    const uint32_t point = index(name);
    return point < plan.points.size() && plan.points[point].is_inside_step() && is_within(plan.points, point, outer);
  };
  for (const std::string& sync : info.syncs)
    if (sync == "verdict" ? outer == kStep : inside(sync)) return "waits for the device (syncs " + quoted(sync) + ")";
  for (const ListenInfo& listen : info.listens)
    if (inside(listen.point) && !listen.capture)
      return "listens to " + quoted(listen.point) + " without `capture = true`";
  for (const WrapInfo& wrap : info.wraps) {
    if (!wrap.modes.empty() && !contains(wrap.modes, "train")) continue;  // `step` is in no other mode
    const bool further_in = index(wrap.point) == outer && wrap.band != "watch" && wrap.band != "capture";
    if (wrap.point != "*" && (inside(wrap.point) || further_in) && !wrap.capture)
      return "wraps " + quoted(wrap.point) + " without `capture = true`";
    if (wrap.point == "*") return "wraps every call, and hears of none that is replayed";
  }
  return "";
}

}  // namespace

std::vector<std::string> other_devices(const PluginInfo& info, const Plan& plan) {
  if (!info.devices.empty() && !contains(info.devices, plan.device)) return info.devices;
  for (const auto& [table, facts] : info.facts)
    if (const auto devices = facts.find("devices"); devices != facts.end() && table != "repeat") {
      const std::vector<std::string> names = texts_in(devices->second);
      const auto is_none = [&](const std::string& kind) { return !contains(names, kind); };
      if (table == "optimizer" ? std::ranges::any_of(plan.updates_on, is_none) : is_none(plan.device)) return names;
    }
  return {};
}

const EnabledTable* host_updater(const std::vector<EnabledTable>& all_enabled) {
  for (const EnabledTable& enabled : all_enabled)
    for (const ListenInfo& listen : enabled.info->listens)
      if (contains(listen.writes, "update_on_host") || contains(listen.writes, "states_in_store")) return &enabled;
  return nullptr;
}

int64_t workspaces_of(const Plan& plan) {
  int64_t bytes = 0;
  for (const Member& member : plan.members)
    if (const Value* stated = fact_of(*member.info, "memory", "workspaces")) bytes += mebibytes_in(stated->as_text());
  return bytes;
}

std::string device_kind(const PluginInfo& device) {
  const Value* stated = fact_of(device, "device", "kind");
  return stated ? stated->as_text() : device.schema.name;
}

std::string why_bits_differ(const Plan& plan, const PluginInfo& info) {
  if (!other_devices(info, plan).empty()) return "";  // it is not chosen there
  const Value* devices = fact_of(info, "repeat", "devices");
  if (devices && !contains(texts_in(*devices), plan.device)) return "";
  const Value* why = fact_of(info, "repeat", "differs");
  if (!why && !plan.repeats) why = fact_of(info, "repeat", "unasked");
  return why ? why->as_text() : "";
}

std::vector<std::string> covered_by(const PluginInfo& info, const std::string& slot) {
  const Value* covers = fact_of(info, slot, "covers");
  return covers ? texts_in(*covers) : std::vector<std::string>();
}

AttachedBelow attached_below(const Plan& plan, int provider, const std::string& slot, const std::string& path,
                             int mode) {
  for (const std::string& covered : covered_by(info_of(plan, provider), slot)) {
    const int point = plan.points.find(covered);
    if (point < 0) continue;
    const PointPlan& here = plan.at[static_cast<size_t>(point)];
    const auto is_here = [&](const Placed& one) {
      return one.member != provider && (one.modes >> mode & 1) &&
             (!one.where || may_take_below(*one.where, path, covered));
    };
    for (const Attached& wrapper : here.wrappers)
      if (!wrapper.of_all && is_here(wrapper)) return {covered, wrapper.member};
    for (const Claim& claim : here.providers)
      if ((claim.where || claim.layer > 0) && is_here(claim)) return {covered, claim.member};
  }
  return {};
}

void check_devices(Plan& plan, const std::vector<EnabledTable>& all_enabled, const Sources& sources, Report& report) {
  // Of a run whose device cannot run, nothing more is to be said about devices.
  const auto cannot_run = [](const Diagnostic& d) { return d.code == "device_unusable"; };
  const std::vector<Claim>& devices = plan.at[kDevice].providers;
  if (devices.empty() || std::ranges::any_of(report.all(), cannot_run)) return;
  const PluginInfo& device = info_of(plan, devices.back().member);
  for (const EnabledTable& enabled : all_enabled) {
    const std::string& id = id_of(*enabled.info);
    const auto others = other_devices(*enabled.info, plan);
    if (contains(others, plan.device) && contains(plan.updates_on, "cpu"))
      refuse_host(enabled, others, all_enabled, report);
    else if (!others.empty())
      refuse_device(enabled, others, id + " works on ", devices.back(), device, sources, report);
    for (PointPlan& here : plan.at)
      for (Claim& claim : here.providers)
        if (claim.member == enabled.member && !claim.choices.empty())
          if (const auto names = leave_able(plan, claim.choices); !names.empty())
            refuse_device(enabled, names, "all that " + id + " chooses from works on ", devices.back(), device, sources,
                          report);
  }
}

void check_facts(const Plan& plan, const std::vector<EnabledTable>& all_enabled, Report& report) {
  for (const EnabledTable& enabled : all_enabled) {
    check_cut(enabled, report);
    check_workspaces(enabled, report);
    check_covers(plan, enabled, report);
    for (const std::string& sync : enabled.info->syncs)
      if (sync != "verdict" && plan.points.find(sync) < 0)
        report.add(plugins_mistake("unknown_point",
                                   id_of(*enabled.info) + " waits for " + quoted(sync) + ", which is no point", enabled,
                                   {}, "syncs = [\"verdict\"], or the point at which it waits"));
  }
}

void check_captured(const Plan& plan, const std::vector<EnabledTable>& all_enabled, Report& report) {
  for (const EnabledTable& records : all_enabled)
    for (const WrapInfo& wrap : records.info->wraps) {
      const int point = plan.points.find(wrap.point);
      if (wrap.band != "capture" || point < 0 || !plan.points[static_cast<uint32_t>(point)].is_inside_step()) continue;
      for (const EnabledTable& enabled : all_enabled) {
        const std::string why =
            enabled.info == records.info ? "" : unrecordable(plan, *enabled.info, static_cast<uint32_t>(point));
        if (why.empty()) continue;
        report.add(refusal(
            "not_recordable",
            id_of(*records.info) + " records " + quoted(wrap.point) + ", and " + id_of(*enabled.info) + " " + why,
            {records.table->origin, enabled.table->origin},
            {"leave out " + as_written(*enabled.info, enabled.table->origin) + " or " +
             as_written(*records.info, records.table->origin)}));
      }
    }
}

}  // namespace mortise
