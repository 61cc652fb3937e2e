// Layers: which table holds which slot. A slot, and an exclusive group likewise, is settled by the tables that contend for it alone, so the order of
// tables and of slots never matters; who was replaced stays replaced, also if the one who replaced it is replaced in turn.
#include <algorithm>
#include <climits>
#include <set>

#include "core/plan/holding.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

struct Contender {
  Holding* holding = nullptr;
  unsigned modes = kAllModes;
  std::vector<Place> except;
  std::vector<const Holding*> lost_to;

  explicit Contender(Holding* h) : holding(h), modes(h->modes) {}
  int layer() const { return holding->table->layer; }
  bool is_open() const { return holding->is_open(); }
};

// The highest layer with an open table decides: what lies below is replaced whole.
void drop_lower_layers(std::vector<Contender>& group) {
  int deciding = INT_MIN;
  for (const Contender& c : group)
    if (c.is_open()) deciding = std::max(deciding, c.layer());
  for (Contender& c : group)
    for (const Contender& other : group)
      if (c.layer() < deciding && other.is_open() && other.layer() == deciding) c.lost_to.push_back(other.holding);
}

// Tables with `where` or `modes` take their places from lower layers, and from the open table of their own.
void give_places(std::vector<Contender>& group) {
  for (Contender& c : group) {
    std::vector<const Holding*> takers;
    if (!c.lost_to.empty()) continue;
    for (const Contender& other : group) {
      if (other.is_open() || !(other.layer() > c.layer() || (other.layer() == c.layer() && c.is_open()))) continue;
      const unsigned modes = modes_of(*other.holding->table) & c.modes;
      if (other.holding->where()) {
        c.except.push_back({other.holding->where(), modes});
      } else if (modes) {
        c.modes &= ~modes;
        takers.push_back(other.holding);
      }
    }
    if (!c.modes) c.lost_to = takers;
  }
}

bool clash(const Contender& a, const Contender& b) {
  if (!a.lost_to.empty() || !b.lost_to.empty() || a.layer() != b.layer() || a.holding->where() || b.holding->where()) return false;
  return a.is_open() == b.is_open() && (a.modes & b.modes) != 0;
}

// What to write to keep both. Only parameters and layers have places to share.
std::string how_to_share(const std::string& slot, const PluginInfo& second) {
  const PointTable core;
  const int point = core.find(slot);
  if (point == kOptimizer) return "; to use both, give each its parameters: " + table_of(second) + " where = \"role:norm\"";
  if (point >= 0 && core[static_cast<uint32_t>(point)].kind == Kind::Object) return "";
  return "; to use both, give each its modes or places: " + table_of(second) + " modes = [\"eval\"]";
}

void report_clashes(const std::vector<Contender>& group, const std::string& name, bool is_slot, Report& report) {
  for (auto a = group.begin(); a != group.end(); ++a)
    for (auto b = std::next(a); b != group.end(); ++b) {
      if (!clash(*a, *b)) continue;
      const PluginInfo &first = *a->holding->info, &second = *b->holding->info;
      report.add(refusal(is_slot ? "two_providers" : "exclusive",
                         id_of(first) + " and " + id_of(second) + (is_slot ? " both provide " : " exclude each other: both are of the group ") +
                             quoted(name) + (a->is_open() ? "" : " in " + modes_text(a->modes & b->modes)),
                         {a->holding->table->origin, b->holding->table->origin}, {"remove one" + how_to_share(is_slot ? name : "", second)}));
    }
}

// An open table whose own layer leaves it nothing was not replaced: it was written in vain.
void report_left_over(const Contender& c, const std::string& name, Report& report) {
  const auto same_layer = [&](const Holding* taker) { return taker->table->layer == c.layer(); };
  if (c.lost_to.empty() || !std::ranges::all_of(c.lost_to, same_layer)) return;
  report.add(refusal("left_without_place", id_of(*c.holding->info) + " is left without a place: others take `" + name + "` in every mode",
                     {c.holding->table->origin}, {"remove " + table_of(*c.holding->info)}));
}

using Groups = std::map<std::string, std::vector<Contender>>;

void settle(Groups& groups, bool are_slots, Report& report) {
  for (auto& [name, group] : groups) {
    drop_lower_layers(group);
    give_places(group);
    report_clashes(group, name, are_slots, report);
    for (const Contender& c : group) report_left_over(c, name, report);
  }
}

// What one table lost, and to whom.
struct Loss {
  std::set<std::string> slots, by;
  bool whole = false;
};

std::string loss_text(const Holding& loser, const Loss& loss) {
  const auto list = [](const std::set<std::string>& names, const char* between) { return join({names.begin(), names.end()}, between); };
  return (loss.whole ? "" : "`" + list(loss.slots, "`, `") + "` of ") + id_of(*loser.info) + " (" + short_text(loser.table->origin) + ") by " +
         list(loss.by, ", ");
}

std::vector<Holding> tables_that_are_on(const Manifest& manifest, const Catalogue& catalogue) {
  std::vector<Holding> holdings;
  for (const PluginTable& table : manifest.plugins) {
    if (!table.enabled || !table.schema) continue;
    const auto found = catalogue.find(table.schema->id);
    if (found == catalogue.end()) continue;
    holdings.push_back({.info = &found->second, .table = &table, .modes = modes_of(table), .why = short_text(table.origin)});
  }
  std::ranges::sort(holdings, {}, [](const Holding& holding) { return id_of(*holding.info); });
  return holdings;
}

}  // namespace

std::vector<Holding> settle_layers(const Manifest& manifest, const Catalogue& catalogue, std::vector<std::string>& replaced, Report& report) {
  std::vector<Holding> holdings = tables_that_are_on(manifest, catalogue);
  Groups slots, exclusive;
  for (Holding& holding : holdings) {
    for (const std::string& slot : holding.info->schema.provides) slots[slot].emplace_back(&holding);
    for (const std::string& group : holding.info->schema.exclusive) exclusive[group].emplace_back(&holding);
  }
  settle(slots, true, report);
  settle(exclusive, false, report);

  std::map<const Holding*, Loss> losses;
  const auto lost = [&](const Contender& c) -> Loss& {
    Loss& loss = losses[c.holding];
    for (const Holding* winner : c.lost_to) loss.by.insert(id_of(*winner->info));
    return loss;
  };
  for (const auto& [slot, group] : slots)
    for (const Contender& c : group) {
      if (c.lost_to.empty())
        c.holding->slots.push_back({slot, c.modes});
      else
        lost(c).slots.insert(slot);
    }
  for (const auto& [name, group] : exclusive)
    for (const Contender& c : group) {
      c.holding->modes &= c.modes;
      c.holding->except.insert(c.holding->except.end(), c.except.begin(), c.except.end());
      if (!c.lost_to.empty()) lost(c).whole = true;
    }

  std::vector<Holding> left;
  for (const Holding& holding : holdings) {
    const auto found = losses.find(&holding);
    if (found == losses.end()) {
      left.push_back(holding);
      continue;
    }
    found->second.whole |= holding.slots.empty();
    replaced.push_back(loss_text(holding, found->second));
    if (!found->second.whole) left.push_back(holding);
  }
  return left;
}

}  // namespace mortise
