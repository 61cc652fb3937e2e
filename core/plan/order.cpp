// The order of those who attach to one point: a graph of befores and afters with a reason on each edge, walked from the
// first to the last.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// 0 is outermost; listeners have none.
size_t depth_of(const Attached& attached) {
  return static_cast<size_t>(std::ranges::find(kBands, attached.band) - std::begin(kBands));
}

// Paths and globs that can have no path in common; an atom may take anything.
bool disjoint(const Selector* a, const Selector* b) {
  if (!a || !b || a->match.empty() || b->match.empty()) return false;
  const auto is_atom = [](const std::string& pattern) { return pattern.find(':') != pattern.npos; };
  return std::ranges::none_of(a->match, [&](const std::string& one) {
    return std::ranges::any_of(
        b->match, [&](const std::string& other) { return is_atom(one) || is_atom(other) || globs_meet(one, other); });
  });
}

class Order {
 public:
  // `said`: ids, those further out first.
  Order(const Plan& plan, uint32_t point, std::vector<Attached>& items, const std::vector<std::string>& said)
      : plan_(plan), row_(plan.points[point]), items_(items), edges_(items.size()), all_before_(items.size()) {
    each_pair([&](size_t a, size_t b) { add_said(a, b, said) || add_declared(a, b); });
    if (!items.empty() && items[0].band.empty()) each_pair([&](size_t a, size_t b) { add_fields(a, b); });
  }

  // By band, by edges and, where both are silent, by id. Edges that a circle makes impossible are reported.
  void sort(Report& report) {
    std::vector<size_t> sorted;
    std::set<size_t> left;
    for (size_t i = 0; i < items_.size(); ++i) left.insert(i);
    const auto waits = [&](size_t i) { return edge_from(i, left) != edges_[i].end(); };
    for (bool said = false; !left.empty(); left.erase(sorted.back())) {
      sorted.push_back(*std::ranges::min_element(
          left, {}, [&](size_t i) { return std::tuple(waits(i), depth_of(items_[i]), id(i)); }));
      if (waits(sorted.back()) && !std::exchange(said, true)) report_circle(left, report);
      for (const auto& [before, because] : edges_[sorted.back()]) {
        all_before_[sorted.back()].insert(before);
        all_before_[sorted.back()].insert(all_before_[before].begin(), all_before_[before].end());
      }
    }
    check(report);
    apply(sorted);
  }

 private:
  using Edges = std::map<size_t, std::string>;  // those before, and why

  template <class Visit>
  void each_pair(Visit visit) const {
    for (size_t a = 0; a < items_.size(); ++a)
      for (size_t b = 0; b < items_.size(); ++b)
        if (a != b && items_[a].band == items_[b].band) visit(a, b);
  }
  const PluginInfo& info(size_t i) const { return info_of(plan_, items_[i].member); }
  const std::string& id(size_t i) const { return id_of(info(i)); }
  const ListenInfo& fields(size_t i) const {
    return *std::ranges::find(info(i).listens, row_.name, &ListenInfo::point);
  }

  // What to write: [order] block = ["a.outer", "b.inner"]
  std::string in_manifest(const std::vector<std::string>& ids) const {
    const std::string key = row_.name.find('.') == row_.name.npos ? row_.name : json_string(row_.name);
    return "[order] " + key + " = [\"" + join(ids, "\", \"") + "\"]   " +
           (items_[0].band.empty() ? "(in this order)" : "(the outermost first)");
  }

  // The manifest has the last word between two that it names.
  bool add_said(size_t a, size_t b, const std::vector<std::string>& said) {
    const auto outer = std::ranges::find(said, id(a)), inner = std::ranges::find(said, id(b));
    if (outer == said.end() || inner == said.end()) return false;
    if (outer < inner) edges_[b][a] = id(b) + " stands after " + id(a) + " in [order]";
    return true;
  }

  // `after` and `before` of plugin.toml, on ids or capabilities.
  bool add_declared(size_t a, size_t b) {
    const auto called = [&](size_t i, const std::string& name) {
      return name == id(i) ? name : quoted(name) + ", which " + id(i) + " provides";
    };
    for (const std::string& name : info(b).after)
      if (stands_for(info(a), name)) edges_[b].try_emplace(a, id(b) + " says after " + called(a, name));
    for (const std::string& name : info(a).before)
      if (stands_for(info(b), name)) edges_[b].try_emplace(a, id(a) + " says before " + called(b, name));
    return true;
  }

  // A field's writer stands before its readers, unless somebody said otherwise.
  void add_fields(size_t writer, size_t reader) {
    for (const std::string& field : fields(writer).writes)
      if (contains(fields(reader).reads, field) && !contains(fields(reader).writes, field) &&
          !edges_[writer].contains(reader))
        edges_[reader].try_emplace(writer,
                                   id(reader) + " reads " + quoted(field) + ", which " + id(writer) + " writes");
  }

  // Two that may meet, and where it matters who comes first, must be ordered.
  void check(Report& report) const {
    each_pair([&](size_t a, size_t b) {
      const std::string conflict = conflict_between(a, b);
      if (a > b || conflict.empty() || !meet(a, b) || all_before_[a].contains(b) || all_before_[b].contains(a)) return;
      const bool wrap = !items_[a].band.empty();
      std::vector<std::string> fixes = {in_manifest({id(a), id(b)})};
      if (wrap) fixes.push_back("or give one of them another `where` or `modes`, so that they never meet");
      fixes.push_back("or say in the plugin.toml of " + id(b) + ": [capabilities] after = [\"" + id(a) + "\"]");
      report.add(refusal(wrap ? "unordered_wrappers" : "unordered_writers",
                         id(a) + " and " + id(b) + conflict + " at " + quoted(row_.name) + ", and nothing orders them",
                         {items_[a].origin, items_[b].origin}, fixes));
    });
  }

  // Who watches changes nothing, and what the core combines itself, the votes of an event, is no conflict either.
  std::string conflict_between(size_t a, size_t b) const {
    if (items_[a].band == "watch") return "";
    if (!items_[a].band.empty()) return " both wrap in band " + quoted(items_[a].band);
    if (row_.kind == Kind::Filter)
      for (const std::string& field : fields(a).writes)
        if (contains(fields(b).writes, field)) return " both write " + quoted(field);
    return "";
  }

  // Are they at one place at one time? Members of one exclusive group never are.
  bool meet(size_t a, size_t b) const {
    return (items_[a].modes & items_[b].modes) && !disjoint(items_[a].where, items_[b].where) &&
           !share(info(a).schema.exclusive, info(b).schema.exclusive);
  }

  // To one of `among` that must come before i.
  Edges::const_iterator edge_from(size_t i, const std::set<size_t>& among) const {
    return std::ranges::find_if(edges_[i], [&](const auto& edge) { return among.contains(edge.first); });
  }

  // Everyone who is left waits for one who is left, so going from one to the one before must come round.
  void report_circle(const std::set<size_t>& left, Report& report) const {
    size_t i = *left.begin();
    for (std::set<size_t> seen; seen.insert(i).second;) i = edge_from(i, left)->first;
    std::vector<std::string> ids = {id(i)}, reasons;
    std::vector<Position> positions;
    for (const size_t start = i; positions.empty() || i != start; ids.push_back(id(i))) {
      const auto edge = edge_from(i, left);
      positions.push_back(items_[i].origin);
      reasons.push_back(edge->second);
      i = edge->first;
    }
    Diagnostic d =
        refusal("cycle", "the order at " + quoted(row_.name) + " goes in a circle: " + join(ids, " after "), positions);
    ids.pop_back();
    d.fixes = {"change `after` or `before` in the plugin.toml of one of them", "or name them all: " + in_manifest(ids)};
    d.at = join(reasons, "; ");
    report.add(std::move(d));
  }

  void apply(const std::vector<size_t>& sorted) {
    std::vector<Attached> result;
    for (const size_t i : sorted) {
      Attached& item = result.emplace_back(items_[i]);
      for (const auto& [before, because] : edges_[i]) item.reasons.push_back({items_[before].member, because});
      if (const size_t place = result.size() - 1; place > 0 && !edges_[i].contains(sorted[place - 1]))
        item.reasons.push_back({result[place - 1].member, why_after(sorted[place - 1], i)});
    }
    items_ = std::move(result);
  }

  // Where no edge says so.
  std::string why_after(size_t before, size_t i) const {
    if (items_[i].band != items_[before].band)
      return "band " + items_[i].band + " is inside band " + items_[before].band;
    return meet(before, i) ? "nothing orders them but their names" : "they never meet";
  }

  const Plan& plan_;
  const PointRow& row_;
  std::vector<Attached>& items_;
  std::vector<Edges> edges_;
  std::vector<std::set<size_t>> all_before_;
};

// Whom [order] names must attach to the point, each once, and nobody can stand outside a band that is further out.
void check_said(const Plan& plan, const std::string& point, const Value& said, Report& report) {
  const int index = plan.points.find(point);
  if (index < 0)
    return report.add(refusal("unknown_point", "[order] names " + quoted(point) + ", which is no point", {said.origin},
                              {nearest_point(plan, point)}));
  std::map<std::string, size_t> depths;  // of those who are not named yet
  for (const auto* attached : {&plan.at[index].wrappers, &plan.at[index].listeners})
    for (const Attached& each : *attached) depths[id_of(plan, each.member)] = depth_of(each);
  const auto is_on = [&](const std::string& id) {
    return std::ranges::any_of(plan.members, [&](const Member& m) { return id_of(*m.info) == id; });
  };
  const auto refuse = [&](const Value& id, const std::string& why, const std::string& fix) {
    report.add(refusal("wrong_order", "[order] names " + id.as_text() + " at " + quoted(point) + ", " + why,
                       {id.origin}, {fix}));
  };
  size_t deepest = 0;
  for (const Value& id : said.as_list()) {
    const auto found = depths.find(id.as_text());
    if (found == depths.end()) {
      if (is_on(id.as_text())) refuse(id, "which does not attach there, or not twice", "leave it out");
      else refuse(id, "which is not on", "[" + id.as_text() + "] switches it on; or leave it out");
      continue;
    }
    if (found->second < deepest)
      refuse(id, "but band " + std::string(kBands[found->second]) + " is outside band " + std::string(kBands[deepest]),
             "name it before those further in");
    deepest = std::max(deepest, found->second);
    depths.erase(found);
  }
}

}  // namespace

void put_in_order(Plan& plan, const std::map<std::string, Value>& order, Report& report) {
  for (const auto& [point, said] : order) check_said(plan, point, said, report);
  for (uint32_t point = 0; point < plan.points.size(); ++point) {
    const auto said = order.find(plan.points[point].name);
    for (std::vector<Attached>* items : {&plan.at[point].wrappers, &plan.at[point].listeners}) {
      Order(plan, point, *items, said == order.end() ? std::vector<std::string>() : said->second.as_texts())
          .sort(report);
    }
  }
}

}  // namespace mortise
