// The order of those who attach to one point: a graph of befores and afters with a reason on each edge, walked from the first to the last.
#include <algorithm>
#include <map>
#include <set>

#include "core/plan/holding.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// Exact paths that have none in common; a glob or an atom may take anything.
bool disjoint(const Selector* a, const Selector* b) {
  const auto exact = [](const Selector* where) {
    return where && !where->match.empty() && std::ranges::all_of(where->match, [](const std::string& p) { return p.find_first_of("*?:") == p.npos; });
  };
  return exact(a) && exact(b) && std::ranges::none_of(a->match, [&](const std::string& path) { return contains(b->match, path); });
}

bool share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& name) { return contains(b, name); });
}

class Order {
 public:
  Order(const Plan& plan, uint32_t point, std::vector<Attached>& items) : plan_(plan), row_(plan.points[point]), items_(items), edges_(items.size()) {
    each_pair([&](size_t a, size_t b) { add_declared(a, b); });
    if (!items.empty() && items[0].band.empty()) each_pair([&](size_t a, size_t b) { add_fields(a, b); });
  }

  // Two that may meet, and where it matters who comes first, must be ordered.
  void check(Report& report) const {
    each_pair([&](size_t a, size_t b) {
      const std::string quarrel = quarrel_of(a, b);
      if (a > b || quarrel.empty() || !meet(a, b) || reaches(a, b) || reaches(b, a)) return;
      report.add(refusal(items_[a].band.empty() ? "unordered_writers" : "unordered_wrappers",
                         id(a) + " and " + id(b) + quarrel + " at " + quoted(row_.name) + ", and nothing orders them",
                         {items_[a].origin, items_[b].origin},
                         {"give one of them another `where` or `modes`: [" + id(b) + "] modes = [\"train\"]",
                          "or say in the plugin.toml of " + id(b) + ": [capabilities] after = [\"" + id(a) + "\"]"}));
    });
  }

  // By band, by edges and, where both are silent, by id. Edges that a circle makes impossible are reported.
  void sort(Report& report) {
    std::vector<size_t> sorted;
    std::set<size_t> left;
    for (size_t i = 0; i < items_.size(); ++i) left.insert(i);
    const auto rank = [&](size_t i) { return std::pair(band_of(i), id(i)); };
    for (bool said = false; !left.empty();) {
      std::vector<size_t> next;
      std::ranges::copy_if(left, std::back_inserter(next), [&](size_t i) { return edge_from(i, left) == edges_[i].end(); });
      if (next.empty()) {
        if (!said) report_circle(left, report);
        said = true;
        next.assign(left.begin(), left.end());
      }
      sorted.push_back(*std::ranges::min_element(next, {}, rank));
      left.erase(sorted.back());
    }
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
  const ListenInfo& fields(size_t i) const { return *std::ranges::find(info(i).listens, row_.name, &ListenInfo::point); }
  size_t band_of(size_t i) const { return static_cast<size_t>(std::ranges::find(kBands, items_[i].band) - std::begin(kBands)); }

  // `after` and `before` of plugin.toml, on ids or capabilities.
  void add_declared(size_t a, size_t b) {
    const auto called = [&](size_t i, const std::string& name) { return name == id(i) ? name : quoted(name) + ", which " + id(i) + " provides"; };
    for (const std::string& name : info(b).after)
      if (stands_for(info(a), name)) edges_[b].try_emplace(a, id(b) + " says after " + called(a, name));
    for (const std::string& name : info(a).before)
      if (stands_for(info(b), name)) edges_[b].try_emplace(a, id(a) + " says before " + called(b, name));
  }

  // A field's writer stands before its readers, unless one of them said otherwise.
  void add_fields(size_t writer, size_t reader) {
    for (const std::string& field : fields(writer).writes)
      if (contains(fields(reader).reads, field) && !contains(fields(reader).writes, field) && !edges_[writer].contains(reader))
        edges_[reader].try_emplace(writer, id(reader) + " reads " + quoted(field) + ", which " + id(writer) + " writes");
  }

  // What the core combines itself, the votes of an event, is no quarrel.
  std::string quarrel_of(size_t a, size_t b) const {
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

  bool reaches(size_t from, size_t to) const {
    std::set<size_t> seen = {to};
    for (std::vector<size_t> todo = {to}; !todo.empty();) {
      const size_t i = todo.back();
      todo.pop_back();
      for (const auto& [before, because] : edges_[i])
        if (seen.insert(before).second) todo.push_back(before);
    }
    return seen.contains(from);
  }

  // To one of `among` that must come before i.
  Edges::const_iterator edge_from(size_t i, const std::set<size_t>& among) const {
    return std::ranges::find_if(edges_[i], [&](const auto& edge) { return among.contains(edge.first); });
  }

  // Everyone who is left waits for one who is left, so going from one to the one before must come round.
  void report_circle(const std::set<size_t>& left, Report& report) const {
    size_t start = *left.begin();
    for (std::set<size_t> seen; seen.insert(start).second;) start = edge_from(start, left)->first;
    std::string names = id(start);
    std::vector<std::string> reasons;
    std::vector<Position> positions;
    size_t i = start;
    do {
      const auto edge = edge_from(i, left);
      positions.push_back(items_[i].origin);
      reasons.push_back(edge->second);
      names += " after " + id(i = edge->first);
    } while (i != start);
    Diagnostic d = refusal("cycle", "the order at " + quoted(row_.name) + " goes in a circle: " + names, positions,
                           {"change `after` or `before` in the plugin.toml of one of them"});
    d.at = join(reasons, "; ");
    report.add(std::move(d));
  }

  // Why it stands after the one before it, where no edge says so.
  void add_neighbour(Attached& item, size_t before, size_t i) const {
    const Attached& previous = items_[before];
    if (edges_[i].contains(before)) return;
    if (item.band != previous.band)
      item.reasons.push_back({previous.member, "band " + item.band + " is inside band " + previous.band});
    else
      item.reasons.push_back({previous.member, meet(before, i) ? "nothing orders them but their names" : "they never meet"});
  }

  void apply(const std::vector<size_t>& sorted) {
    std::vector<Attached> result;
    for (const size_t i : sorted) {
      Attached& item = result.emplace_back(items_[i]);
      for (const auto& [before, because] : edges_[i]) item.reasons.push_back({items_[before].member, because});
      if (result.size() > 1) add_neighbour(item, sorted[result.size() - 2], i);
    }
    items_ = std::move(result);
  }

  const Plan& plan_;
  const PointRow& row_;
  std::vector<Attached>& items_;
  std::vector<Edges> edges_;
};

}  // namespace

void put_in_order(Plan& plan, Report& report) {
  for (uint32_t point = 0; point < plan.points.size(); ++point)
    for (std::vector<Attached>* items : {&plan.at[point].wrappers, &plan.at[point].listeners}) {
      Order order(plan, point, *items);
      order.check(report);
      order.sort(report);
    }
}

}  // namespace mortise
