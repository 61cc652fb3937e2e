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

class Order {
 public:
  Order(const Plan& plan, uint32_t point, std::vector<Attached>& items)
      : plan_(plan), point_(plan.points[point].name), items_(items), edges_(items.size()) {
    for (size_t a = 0; a < items.size(); ++a)
      for (size_t b = 0; b < items.size(); ++b)
        if (a != b && items[a].band == items[b].band) declared(a, b);
  }

  const PluginInfo& info(size_t i) const { return info_of(plan_, items_[i].member); }
  const std::string& point() const { return point_; }
  void edge(size_t first, size_t second, std::string because) { edges_[second].try_emplace(first, std::move(because)); }
  bool direct(size_t first, size_t second) const { return edges_[second].contains(first); }

  // Are they at one place at one time? Members of one exclusive group never are.
  bool meet(size_t a, size_t b) const {
    const auto& groups = info(a).schema.exclusive;
    return (items_[a].modes & items_[b].modes) && !disjoint(items_[a].where, items_[b].where) &&
           std::ranges::none_of(groups, [&](const std::string& group) { return contains(info(b).schema.exclusive, group); });
  }
  bool ordered(size_t a, size_t b) const { return reaches(a, b) || reaches(b, a); }

  // Items as `rank`, edges and then ids say; edges that a circle makes impossible are reported.
  template <class Rank>
  void sort(Rank rank, Report& report) {
    std::vector<size_t> sorted;
    std::set<size_t> left;
    for (size_t i = 0; i < items_.size(); ++i) left.insert(i);
    const auto free = [&](size_t i) { return std::ranges::none_of(edges_[i], [&](const auto& e) { return left.contains(e.first); }); };
    const auto earlier = [&](size_t a, size_t b) { return std::pair(rank(a), id_of(info(a))) < std::pair(rank(b), id_of(info(b))); };
    while (!left.empty()) {
      std::vector<size_t> next;
      std::ranges::copy_if(left, std::back_inserter(next), free);
      if (next.empty()) {
        report_cycle(left, report);
        next.assign(left.begin(), left.end());
      }
      const size_t first = *std::ranges::min_element(next, earlier);
      left.erase(first);
      sorted.push_back(first);
    }
    apply(sorted);
  }

 private:
  bool is_called(size_t i, const std::string& name) const { return id_of(info(i)) == name || contains(info(i).capabilities, name); }

  // `after` and `before` of plugin.toml, on ids or capabilities.
  void declared(size_t a, size_t b) {
    const auto what = [&](size_t i, const std::string& name) {
      return name == id_of(info(i)) ? name : quoted(name) + ", which " + id_of(info(i)) + " provides";
    };
    for (const std::string& name : info(b).after)
      if (is_called(a, name)) edge(a, b, id_of(info(b)) + " says after " + what(a, name));
    for (const std::string& name : info(a).before)
      if (is_called(b, name)) edge(a, b, id_of(info(a)) + " says before " + what(b, name));
  }

  bool reaches(size_t from, size_t to) const {
    std::set<size_t> seen;
    std::vector<size_t> todo = {to};
    while (!todo.empty()) {
      const size_t i = todo.back();
      todo.pop_back();
      if (i == from) return true;
      for (const auto& [before, because] : edges_[i])
        if (seen.insert(before).second) todo.push_back(before);
    }
    return false;
  }

  // Everyone who is left waits for one who is left, so going back along edges must meet somebody twice. Said once for this point.
  void report_cycle(const std::set<size_t>& left, Report& report) {
    if (cycle_reported_) return;
    cycle_reported_ = true;
    std::vector<size_t> path = {*left.begin()};
    std::vector<std::string> reasons;
    while (std::ranges::count(path, path.back()) < 2)
      for (const auto& [before, because] : edges_[path.back()])
        if (left.contains(before)) {
          path.push_back(before);
          reasons.push_back(because);
          break;
        }
    const auto begin = std::ranges::find(path, path.back()) - path.begin();
    std::vector<std::string> names;
    std::vector<Position> positions;
    for (auto i = path.begin() + begin; i != path.end(); ++i) {
      names.push_back(id_of(info(*i)));
      if (i + 1 != path.end()) positions.push_back(items_[*i].origin);
    }
    reasons.erase(reasons.begin(), reasons.begin() + begin);
    Diagnostic d = refusal("cycle", "the order at " + quoted(point_) + " goes in a circle: " + join(names, " after "), positions,
                           {"change `after` or `before` in the plugin.toml of one of them"});
    d.at = join(reasons, "; ");
    report.add(std::move(d));
  }

  void apply(const std::vector<size_t>& sorted) {
    std::vector<Attached> result;
    for (size_t n = 0; n < sorted.size(); ++n) {
      Attached item = items_[sorted[n]];
      const auto& edges = edges_[sorted[n]];
      for (const auto& [before, because] : edges) item.reasons.push_back({items_[before].member, because});
      if (n > 0 && !edges.contains(sorted[n - 1])) {
        const Attached& previous = items_[sorted[n - 1]];
        item.reasons.push_back({previous.member, item.band == previous.band ? "nothing orders them but their names"
                                                                            : "band " + item.band + " is inside band " + previous.band});
      }
      for (const Reason& reason : item.reasons) item.why += "; after " + id_of(plan_, reason.after) + " because " + reason.because;
      result.push_back(std::move(item));
    }
    items_ = std::move(result);
  }

  const Plan& plan_;
  const std::string& point_;
  std::vector<Attached>& items_;
  std::vector<std::map<size_t, std::string>> edges_;  // by the later one: the earlier ones, and why
  bool cycle_reported_ = false;
};

void report_unordered(const Order& order, size_t a, size_t b, const std::vector<Attached>& items, std::string code, const std::string& both,
                      Report& report) {
  const PluginInfo &first = order.info(a), &second = order.info(b);
  report.add(refusal(std::move(code), id_of(first) + " and " + id_of(second) + both + " at " + quoted(order.point()) + ", and nothing orders them",
                     {items[a].origin, items[b].origin},
                     {"give one of them another `where` or `modes`: " + table_of(second) + " modes = [\"train\"]",
                      "or say in the plugin.toml of " + id_of(second) + ": [capabilities] after = [\"" + id_of(first) + "\"]"}));
}

size_t band_of(const Attached& item) { return static_cast<size_t>(std::ranges::find(kBands, item.band) - std::begin(kBands)); }

const ListenInfo& listening(const PluginInfo& info, const std::string& point) { return *std::ranges::find(info.listens, point, &ListenInfo::point); }

// A field's writer stands before its readers, unless one of them said otherwise.
void add_field_edges(Order& order, size_t count) {
  for (size_t writer = 0; writer < count; ++writer)
    for (const std::string& field : listening(order.info(writer), order.point()).writes)
      for (size_t reader = 0; reader < count; ++reader) {
        const ListenInfo& other = listening(order.info(reader), order.point());
        if (reader == writer || !contains(other.reads, field) || contains(other.writes, field) || order.direct(reader, writer)) continue;
        order.edge(writer, reader, id_of(order.info(reader)) + " reads " + quoted(field) + ", which " + id_of(order.info(writer)) + " writes");
      }
}

// The first field that both write, or "".
std::string written_by_both(const ListenInfo& a, const ListenInfo& b) {
  const auto field = std::ranges::find_if(a.writes, [&](const std::string& name) { return contains(b.writes, name); });
  return field == a.writes.end() ? "" : *field;
}

}  // namespace

// Bands decide first; inside one band `after` and `before` do, and where those are silent the places must not meet.
void order_wrappers(Plan& plan, uint32_t point, Report& report) {
  std::vector<Attached>& items = plan.at[point].wrappers;
  Order order(plan, point, items);
  for (size_t a = 0; a < items.size(); ++a)
    for (size_t b = a + 1; b < items.size(); ++b)
      if (items[a].band == items[b].band && order.meet(a, b) && !order.ordered(a, b))
        report_unordered(order, a, b, items, "unordered_wrappers", " both wrap in band `" + items[a].band + "`", report);
  order.sort([&](size_t i) { return band_of(items[i]); }, report);
}

void order_listeners(Plan& plan, uint32_t point, Report& report) {
  std::vector<Attached>& items = plan.at[point].listeners;
  Order order(plan, point, items);
  add_field_edges(order, items.size());
  const bool is_filter = plan.points[point].kind == Kind::Filter;  // what listeners of an event give, the core combines: votes multiply
  for (size_t a = 0; is_filter && a < items.size(); ++a)
    for (size_t b = a + 1; b < items.size(); ++b) {
      const std::string field = written_by_both(listening(order.info(a), order.point()), listening(order.info(b), order.point()));
      if (!field.empty() && order.meet(a, b) && !order.ordered(a, b))
        report_unordered(order, a, b, items, "unordered_writers", " both write " + quoted(field), report);
    }
  order.sort([](size_t) { return 0; }, report);
}

}  // namespace mortise
