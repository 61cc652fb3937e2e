// Layers: which table holds which slot. A slot, and an exclusive group likewise, is settled by the tables that contend
// for it alone, so the order of tables and of slots never matters; who was replaced stays replaced, also if the one who
// replaced it is replaced in turn.
#include <algorithm>
#include <climits>

#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

using Group = std::vector<EnabledTable*>;

// What one table has of one slot or group. Without modes it lost it, to the winners.
struct Outcome {
  unsigned modes = 0;
  std::vector<Place> except;
  std::vector<const EnabledTable*> winners;
};

// The highest layer with an open table: what lies below is replaced whole.
int deciding_layer(const Group& group) {
  int layer = INT_MIN;
  for (const EnabledTable* h : group)
    if (h->is_open()) layer = std::max(layer, h->table->layer);
  return layer;
}

// Tables with `where` or `modes` take their places from lower layers, and from the open table of their own.
bool takes_from(const EnabledTable& taker, const EnabledTable& own) {
  return !taker.is_open() &&
         (taker.table->layer > own.table->layer || (taker.table->layer == own.table->layer && own.is_open()));
}

Outcome outcome_of(const EnabledTable& own, const Group& group) {
  Outcome outcome{.modes = modes_of(*own.table), .except = {}, .winners = {}};
  const int deciding = deciding_layer(group);
  for (const EnabledTable* other : group) {
    if (own.table->layer < deciding) {
      outcome.modes = 0;
      if (other->is_open() && other->table->layer == deciding) outcome.winners.push_back(other);
    } else if (const unsigned modes = modes_of(*other->table) & outcome.modes; modes && takes_from(*other, own)) {
      if (other->where) {
        outcome.except.push_back({other->where, modes});
      } else {
        outcome.modes &= ~modes;
        outcome.winners.push_back(other);
      }
    }
  }
  return outcome;
}

// What to write to keep both. Only parameters and layers have places to share.
std::string how_to_share(const std::string& slot, const PluginInfo& second) {
  const PointTable core;
  const int point = core.find(slot);
  if (point == kOptimizer)
    return "; to use both, give each its parameters: " + table_of(second) + " where = \"role:matrix\"";
  if (point >= 0 && core[static_cast<uint32_t>(point)].kind == Kind::Object) return "";
  return "; to use both, give each its modes or places: " + table_of(second) + " modes = [\"eval\"]";
}

// Two of one layer that both leave `where` open, for as far as they share modes: an open one gives way to one with
// `modes`.
void check_clash(const EnabledTable& a, const EnabledTable& b, unsigned modes, const std::string& name, bool is_slot,
                 Report& report) {
  if (!modes || a.table->layer != b.table->layer || a.where || b.where || a.is_open() != b.is_open()) return;
  report.add(refusal(is_slot ? "two_providers" : "exclusive",
                     id_of(*a.info) + " and " + id_of(*b.info) +
                         (is_slot ? " both provide " : " exclude each other: both are of the group ") + quoted(name) +
                         (a.is_open() ? "" : " in " + join(mode_names(modes), ", ")),
                     {a.table->origin, b.table->origin}, {"remove one" + how_to_share(is_slot ? name : "", *b.info)}));
}

void settle(const std::string& name, bool is_slot, const Group& group, Report& report) {
  std::vector<Outcome> outcomes;
  for (const EnabledTable* enabled : group) outcomes.push_back(outcome_of(*enabled, group));
  for (size_t i = 0; i < group.size(); ++i) {
    EnabledTable& own = *group[i];
    Outcome& outcome = outcomes[i];
    for (size_t j = i + 1; j < group.size(); ++j)
      check_clash(own, *group[j], outcome.modes & outcomes[j].modes, name, is_slot, report);
    if (outcome.modes && is_slot) own.slots.push_back({name, outcome.modes, {}});
    if (outcome.modes && !is_slot) {
      own.modes &= outcome.modes;
      own.except.insert(own.except.end(), outcome.except.begin(), outcome.except.end());
    }
    if (outcome.modes) continue;
    own.lost.insert(name);
    own.is_replaced |= !is_slot;
    for (const EnabledTable* winner : outcome.winners) own.lost_to.insert(id_of(*winner->info));
    // Written in vain, not replaced: its own layer left it nothing.
    if (std::ranges::all_of(outcome.winners,
                            [&](const EnabledTable* winner) { return winner->table->layer == own.table->layer; }))
      report.add(refusal("left_without_place",
                         id_of(*own.info) + " is left without a place: others take " + quoted(name) + " in every mode",
                         {own.table->origin}, {"remove " + table_of(*own.info)}));
  }
}

// "ID (default.toml:13) by ID", or "`slot` of ID (default.toml:9) by ID" where it keeps others.
std::string loss_text(const EnabledTable& loser) {
  const auto list = [](const std::set<std::string>& names, const char* between) {
    return join({names.begin(), names.end()}, between);
  };
  return (loser.is_replaced ? "" : quoted(list(loser.lost, "`, `")) + " of ") + id_of(*loser.info) + " (" +
         short_text(loser.table->origin) + ") by " + list(loser.lost_to, ", ");
}

std::vector<EnabledTable> tables_that_are_on(const Manifest& manifest, const Catalogue& catalogue) {
  std::vector<EnabledTable> all_enabled;
  for (const PluginTable& table : manifest.plugins) {
    if (!table.enabled || !table.schema) continue;
    const auto found = catalogue.find(table.schema->id);
    if (found == catalogue.end()) continue;
    const Place place{table.where ? &*table.where : nullptr, modes_of(table)};
    all_enabled.push_back({{place, 0, short_text(table.origin), table.origin}, &found->second, &table});
  }
  std::ranges::sort(all_enabled, {}, [](const EnabledTable& enabled) { return id_of(*enabled.info); });
  return all_enabled;
}

}  // namespace

std::vector<EnabledTable> settle_layers(const Manifest& manifest, const Catalogue& catalogue,
                                        std::vector<std::string>& replaced, Report& report) {
  std::vector<EnabledTable> all_enabled = tables_that_are_on(manifest, catalogue);
  std::map<std::string, Group> slots, exclusive;
  for (EnabledTable& enabled : all_enabled) {
    for (const std::string& slot : enabled.info->schema.provides) slots[slot].push_back(&enabled);
    for (const std::string& group : enabled.info->schema.exclusive) exclusive[group].push_back(&enabled);
  }
  for (const auto& [name, group] : slots) settle(name, true, group, report);
  for (const auto& [name, group] : exclusive) settle(name, false, group, report);
  for (EnabledTable& enabled : all_enabled) {
    if (enabled.lost.empty()) continue;
    enabled.is_replaced |= enabled.slots.empty();
    replaced.push_back(loss_text(enabled));
  }
  std::erase_if(all_enabled, [](const EnabledTable& enabled) { return enabled.is_replaced; });
  return all_enabled;
}

}  // namespace mortise
