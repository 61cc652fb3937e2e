// One provider at each place: whose layer or parameter is whose.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// "layer.0.query.weight" -> "layer.*.query.weight": a name for all of a stack.
std::string without_numbers(const std::string& path) {
  std::vector<std::string> parts = split(path, '.');
  for (std::string& part : parts)
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) part = "*";
  return join(parts, ".");
}

// Of everything that somebody may have meant: paths, beginnings of paths, stacks, atoms.
std::string nearest_pattern(const std::string& wanted, const std::vector<Element>& elements) {
  std::set<std::string> patterns;
  for (const Element& element : elements) {
    for (const std::string& path : {element.path, without_numbers(element.path)}) {
      patterns.insert(path);
      for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
        if (dot > 0 && path[dot - 1] != '*') patterns.insert(path.substr(0, dot) + ".*");
    }
    for (std::string& atom : atoms_of(element)) patterns.insert(std::move(atom));
  }
  return *std::ranges::min_element(patterns, {},
                                   [&](const std::string& pattern) { return edit_distance(wanted, pattern); });
}

// The same mistake shows in every mode and at every point of one plugin: it is said once.
void add_once(Report& report, Diagnostic d) {
  const auto same = [&](const Diagnostic& other) { return other.code == d.code && other.message == d.message; };
  if (std::ranges::none_of(report.all(), same)) report.add(std::move(d));
}

void matches_nothing(const Selector& where, const Plan& plan, const std::vector<Element>& elements,
                     const std::string& what, Report& report, const std::string& attached = "") {
  const auto count = [&](std::vector<std::string> match) {
    return static_cast<int64_t>(select(Selector{std::move(match)}, elements).size());
  };
  const std::string patterns = where.match.empty() ? "`*`" : quoted(join(where.match, "`, `"));
  const std::vector<Claim>& models = plan.at[kModel].providers;
  const std::string of = (models.empty() ? "" : " of " + id_of(plan, models.front().member)) + attached;
  if (const int64_t before = count(where.match)) {
    add_once(report, refusal("matches_nothing",
                             patterns + " matches " + with_commas(before) + " " + what + (before == 1 ? "" : "s") + of +
                                 ", and `except`, `every`, `from` leave none",
                             {where.origin}, {"take less away; `from` counts from 0"}));
    return;
  }
  Diagnostic d =
      refusal("matches_nothing", patterns + (where.match.size() > 1 ? " match no " : " matches no ") + what + of,
              {where.origin});
  if (!elements.empty()) {
    const std::string pattern = nearest_pattern(where.match.front(), elements);
    d.fixes = {pattern + " matches " + with_commas(count({pattern})) + "      all names: mortise plan --weights"};
  } else {
    d.fixes = {"leave `where` out"};
  }
  add_once(report, std::move(d));
}

// Elements that share a mistake, named by the first: "layer `h.0.attn` and 11 more".
std::string some(const std::string& what, const std::vector<size_t>& which, const std::vector<Element>& elements) {
  return what + " " + quoted(elements[which.front()].path) +
         (which.size() > 1 ? " and " + std::to_string(which.size() - 1) + " more" : "");
}

Diagnostic two_claims(const std::string& first, const std::string& second, const std::string& slot,
                      const std::string& at, const Position& one, const Position& other) {
  return refusal("two_claims", first + " and " + second + " both claim " + quoted(slot) + " at the " + at, {one, other},
                 {"give one of them another `where` or `modes`"});
}

Diagnostic no_provider(const Plan& plan, const PointPlan& here, const std::string& at, const std::string& slot,
                       int mode) {
  const std::string message = "nothing provides " + quoted(slot) + " at the " + at;
  if (here.providers.empty())
    return refusal("no_provider", message, {}, {"mortise plugin list names what is installed"});
  const Claim& claim = here.providers.back();
  return refusal(
      "no_provider", message + " in " + std::string(kModes[mode]), {claim.origin},
      {"[" + id_of(plan, claim.member) + "] without `where` and `modes` takes the rest; or add a table that does"});
}

// Two of one exclusive group that name the same element in one layer.
void check_group(const Member& a, const Member& b, const std::vector<Element>& elements, const std::string& what,
                 Report& report) {
  if (!a.table || !b.table || a.table->layer != b.table->layer || !(modes_of(*a.table) & modes_of(*b.table))) return;
  if (!a.table->where || !b.table->where)
    return;  // an open one gives way; without `where` it was settled with the structure
  const auto& groups = a.info->schema.exclusive;
  const auto group =
      std::ranges::find_if(groups, [&](const std::string& name) { return contains(b.info->schema.exclusive, name); });
  std::vector<size_t> both;
  std::ranges::set_intersection(select(*a.table->where, elements), select(*b.table->where, elements),
                                std::back_inserter(both));
  if (group == groups.end() || both.empty()) return;
  add_once(report, two_claims(id_of(*a.info), id_of(*b.info), *group, some(what, both, elements), a.table->origin,
                              b.table->origin));
}

// What a plugin's `where` can take: the elements of the points that it attaches to. Of an exclusive group also those
// of the others, from whom it takes the place.
std::vector<Element> reach_of(const Member& member, const Plan& plan, const std::vector<Element>& elements) {
  const auto counts = [&](const Placed& one) {
    const PluginInfo& info = info_of(plan, one.member);
    return &info == member.info ? one.where != nullptr : share(info.schema.exclusive, member.info->schema.exclusive);
  };
  const auto attaches = [&](int point) {
    const PointPlan& here = plan.at[point];
    return std::ranges::any_of(here.providers, counts) || std::ranges::any_of(here.wrappers, counts) ||
           std::ranges::any_of(here.listeners, counts);
  };
  std::vector<Element> reach;
  for (const Element& element : elements) {
    const int point = plan.points.find(element.slot);
    if (point >= 0 ? attaches(point) : attaches(kOptimizer) || attaches(kParamsDeclared)) reach.push_back(element);
  }
  return reach;
}

// A `where` that takes layers alone would leave a listener of params.declared idle, and the plan would show it.
void check_listener(const Member& m, const Plan& plan, std::vector<Element> reach, Report& report) {
  const auto is_ours = [&](const Attached& a) { return a.where && &info_of(plan, a.member) == m.info; };
  if (std::ranges::none_of(plan.at[kParamsDeclared].listeners, is_ours)) return;
  std::erase_if(reach, [](const Element& e) { return !e.slot.empty(); });  // what has no slot is a parameter
  if (select(*m.table->where, reach).empty())
    matches_nothing(*m.table->where, plan, reach, "parameter", report,
                    ", and " + id_of(*m.info) + " listens to `params.declared` without `everywhere`");
}

// One `where` of a plugin with several points need not take something at each: check_where() looks at them together.
bool claims_elsewhere(const Plan& plan, const PointPlan& here, const Claim& claim) {
  return std::ranges::any_of(plan.at, [&](const PointPlan& other) {
    return &other != &here && std::ranges::find(other.providers, claim.where, &Claim::where) != other.providers.end();
  });
}

}  // namespace

std::vector<int> assign(const PointPlan& here, const Plan& plan, const std::vector<Element>& elements, int mode,
                        const std::string& what, const std::string& slot, Report& report) {
  // Claims come with the more particular first, so the first to arrive at an element is right; a second particular one
  // of its layer is a mistake.
  std::vector<int> provider(elements.size(), -1);
  std::map<std::pair<int, int>, std::vector<size_t>> clashes;
  for (int c = 0; c < static_cast<int>(here.providers.size()); ++c) {
    const Claim& claim = here.providers[c];
    if (claim.where && !claims_elsewhere(plan, here, claim) && select(*claim.where, elements).empty())
      matches_nothing(*claim.where, plan, elements, what, report);
    for (size_t i : select(claim, elements, mode)) {
      if (provider[i] < 0) provider[i] = c;
      else if (here.providers[provider[i]].layer == claim.layer && !claim.open) clashes[{provider[i], c}].push_back(i);
    }
  }
  for (const auto& [pair, which] : clashes) {
    const Claim &a = here.providers[pair.first], &b = here.providers[pair.second];
    add_once(report, two_claims(id_of(plan, a.member), id_of(plan, b.member), slot, some(what, which, elements),
                                a.origin, b.origin));
  }
  std::vector<size_t> without;
  for (size_t i = 0; i < elements.size(); ++i)
    if (provider[i] < 0) without.push_back(i);
  if (!without.empty()) add_once(report, no_provider(plan, here, some(what, without, elements), slot, mode));
  return provider;
}

void check_where(const Plan& plan, const std::vector<Element>& elements, const std::string& what, Report& report) {
  for (auto a = plan.members.begin(); a != plan.members.end(); ++a) {
    if (a->table && a->table->where) {
      const auto reach = reach_of(*a, plan, elements);
      if (select(*a->table->where, reach).empty())
        matches_nothing(*a->table->where, plan, reach, what, report, " where " + id_of(*a->info) + " attaches");
      else check_listener(*a, plan, reach, report);
    }
    for (auto b = std::next(a); b != plan.members.end(); ++b) check_group(*a, *b, elements, what, report);
  }
}

}  // namespace mortise
