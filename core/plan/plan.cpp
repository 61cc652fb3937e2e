// Puts the plan together: settled tables become members, members claim slots and attach to points, each point gets its
// order.
#include "core/plan/facts.hpp"

#include <algorithm>
#include <tuple>

#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

const Value* asked_to_repeat(const Manifest& manifest) {
  const auto run = manifest.tables.find("run");
  if (run == manifest.tables.end()) return nullptr;
  const auto asked = run->second.find("deterministic");
  return asked != run->second.end() && asked->second.as_bool() ? &asked->second : nullptr;
}

int member_of(const Plan& plan, const PluginInfo& info) {
  const auto found =
      std::ranges::lower_bound(plan.members, id_of(info), {}, [](const Member& member) { return id_of(*member.info); });
  return static_cast<int>(found - plan.members.begin());
}

// In the order of ids, so that indices mean the same whatever the order of tables was.
void number_members(Plan& plan, std::vector<EnabledTable>& all_enabled) {
  std::map<std::string, Member> members;
  for (const EnabledTable& enabled : all_enabled) {
    Member& member = members[id_of(*enabled.info)];
    member.info = enabled.info;
    if (!enabled.is_stand_in()) member.table = enabled.table;
    for (const Slot& slot : enabled.slots)
      for (const PluginInfo* info : slot.choices) members[id_of(*info)].info = info;
  }
  for (auto& [id, member] : members) plan.members.push_back(member);
  for (EnabledTable& enabled : all_enabled) enabled.member = member_of(plan, *enabled.info);
}

void bring_operators(Plan& plan, Report& report) {
  const PointTable core;
  for (const Member& member : plan.members)
    for (const OperatorRow& row : member.info->operators) {
      if (core.find(row.name) >= 0)
        report.add(
            refusal("point_taken",
                    id_of(*member.info) + " brings an operator " + quoted(row.name) + ", which is a point of the core",
                    {member.table ? member.table->origin : Position{}}, {"another name in " + member.info->toml_path}));
      else
        plan.points.add_operator(row.name, row.arguments + " -> " + row.results, row.doc, id_of(*member.info),
                                 row.dtypes);
    }
  plan.at.resize(plan.points.size());
}

void claim_slots(Plan& plan, const std::vector<EnabledTable>& all_enabled, const Catalogue& catalogue, Report& report) {
  for (const EnabledTable& enabled : all_enabled)
    for (const Slot& slot : enabled.slots) {
      const int point = find_point(plan, catalogue, enabled, Way::Provides, slot.point, {}, report);
      if (point < 0) continue;
      Claim& claim = plan.at[point].providers.emplace_back(Claim{enabled});
      claim.modes &= slot.modes;
      claim.layer = enabled.table->layer;
      claim.open = enabled.is_open();
      for (const PluginInfo* info : slot.choices) claim.choices.push_back(member_of(plan, *info));
    }
  for (PointPlan& here : plan.at)
    std::ranges::stable_sort(here.providers, {},
                             [](const Claim& claim) { return std::tuple(claim.open, -claim.layer); });
}

// A stand-in that has a table of its own, or stands in twice, attaches once.
bool attaches(const EnabledTable& enabled, const std::vector<EnabledTable>& all_enabled) {
  const auto own = [&](const EnabledTable& other) { return other.info == enabled.info && !other.is_stand_in(); };
  if (!enabled.is_stand_in()) return true;
  return std::ranges::none_of(all_enabled, own) &&
         &*std::ranges::find(all_enabled, enabled.info, &EnabledTable::info) == &enabled;
}

// An adapter works where its table says and has to freeze what lies elsewhere.
Attached everywhere(Attached attached) {
  attached.where = nullptr;
  attached.except.clear();
  return attached;
}

// Every call and operator, but those that the plugin wraps by name as well.
void wrap_all(Plan& plan, Attached attached) {
  attached.band = "watch";
  const std::vector<WrapInfo>& wraps = info_of(plan, attached.member).wraps;
  for (uint32_t point = 0; point < plan.points.size(); ++point) {
    const PointRow& row = plan.points[point];
    if ((row.kind == Kind::Call || row.kind == Kind::Operator) &&
        std::ranges::find(wraps, row.name, &WrapInfo::point) == wraps.end())
      plan.at[point].wrappers.push_back(attached);
  }
}

void attach(Plan& plan, const std::vector<EnabledTable>& all_enabled, const Catalogue& catalogue, Report& report) {
  for (const EnabledTable& enabled : all_enabled) {
    if (!attaches(enabled, all_enabled)) continue;
    Attached attached{enabled, enabled.except};
    for (const ListenInfo& listen : enabled.info->listens) {
      const int point = find_point(plan, catalogue, enabled, Way::Listens, listen.point, listen.origin, report);
      if (point < 0) continue;
      if (is_heard_in_training(plan.points, static_cast<uint32_t>(point)) && !(attached.modes & 1)) continue;
      check_listener(enabled, plan.points[point], listen, report);
      plan.at[point].listeners.push_back(listen.everywhere ? everywhere(attached) : attached);
    }
    for (const WrapInfo& wrap : enabled.info->wraps) {
      attached.of_all = wrap.point == "*";
      if (attached.of_all) {
        if (check_watcher(enabled, wrap, report)) wrap_all(plan, attached);
        continue;
      }
      if (wrap.optional && plan.points.find(wrap.point) < 0) continue;
      const int point = find_point(plan, catalogue, enabled, Way::Wraps, wrap.point, wrap.origin, report);
      attached.band = wrap.band;
      attached.modes = enabled.modes & modes_of(wrap);
      if (point >= 0 && attached.modes && check_wrapper(enabled, plan.points[point], wrap, report))
        plan.at[point].wrappers.push_back(attached);
    }
  }
}

}  // namespace

const Value* value_of_fact(const Member& member, const std::string& table, const std::string& fact) {
  const Value* key = fact_of(*member.info, table, fact);
  if (!key || !member.table) return nullptr;
  const auto found = member.table->values.find(key->as_text());
  return found == member.table->values.end() || !found->second.is_set() ? nullptr : &found->second;
}

std::vector<std::string> prompts_of(const Plan& plan) {
  const std::vector<Claim>& samplers = plan.at[kSample].providers;
  if (samplers.empty()) return {};
  const Value* prompts = value_of_fact(plan.members[samplers.back().member], "sample", "prompts");
  return prompts ? prompts->as_texts() : std::vector<std::string>();
}

Plan make_plan(const Manifest& manifest, const Catalogue& catalogue, const CanStart& can_start, Report& report) {
  const Sources sources{manifest, catalogue, can_start};
  Plan plan;
  plan.repeats = asked_to_repeat(manifest);
  std::vector<EnabledTable> all_enabled = settle_layers(manifest, catalogue, plan.replaced, report);
  put_stand_ins(plan, all_enabled, sources, report);
  gather_choices(plan, all_enabled, sources, report);
  number_members(plan, all_enabled);
  bring_operators(plan, report);
  claim_slots(plan, all_enabled, catalogue, report);
  attach(plan, all_enabled, catalogue, report);
  const auto order = manifest.tables.find("order");
  put_in_order(plan, order == manifest.tables.end() ? std::map<std::string, Value>() : order->second, report);
  check_modes(plan, all_enabled, report);
  check_requirements(plan, all_enabled, sources, report);
  check_conflicts(all_enabled, report);
  check_validation(manifest, all_enabled, report);
  check_names(plan, all_enabled, catalogue, report);
  check_devices(plan, all_enabled, sources, report);
  check_sampled(plan, report);
  check_facts(plan, all_enabled, report);
  check_captured(plan, all_enabled, report);
  plan.hash = hash_of(plan, manifest);
  return plan;
}

}  // namespace mortise
