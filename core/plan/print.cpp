// What `mortise plan` prints of the structure, and the reasons behind an order.
#include <algorithm>
#include <ostream>
#include <set>

#include "core/plan/columns.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// The core's own order once backward is done, and why each comes before the next.
struct Stop {
  Point point;
  std::string_view because;
};
constexpr Stop kAfterBackward[] = {
    {kReplicas, "gradients are whole before anything reads them (core)"},
    {kStepVerdict, "the verdict is decided before anything is changed (core)"},
    {kGradTransform, "gradients are final before the optimizer reads them (core)"},
    {kOptimizer, "the update is done before anyone is told (core)"},
    {kStepCommit, ""},
};

bool after_backward(uint32_t point) { return std::ranges::find(kAfterBackward, point, &Stop::point) != std::end(kAfterBackward); }

using Details = std::map<std::string, std::string>;
using Ids = std::vector<std::string>;

constexpr size_t kLongestDetail = 56;

std::string shortened(std::string text) {
  if (text_width(text) <= kLongestDetail) return text;
  size_t bytes = 0;
  for (size_t width = 0; bytes < text.size() && width < kLongestDetail; ++bytes) width += (text[bytes] & 0xC0) != 0x80;
  return text.substr(0, bytes - 1) + "…";
}

// The keys that a manifest set; plugin.toml's own values go without saying.
std::string settings_of(const Member& member) {
  Ids settings;
  if (member.table)
    for (const auto& [key, value] : member.table->values)
      if (value.is_set() && !value.origin.file.starts_with("plugin.toml") && value.origin) settings.push_back(key + " " + value.text());
  return join(settings, ", ");
}

std::string place_text(const Selector* where, unsigned modes) {
  std::string text;
  if (where) {
    text = "at " + join(where->match.empty() ? Ids{"*"} : where->match, ", ");
    if (!where->except.empty()) text += " except " + join(where->except, ", ");
    if (where->every > 1) text += ", one in " + std::to_string(where->every);
  }
  if (modes != kAllModes) text += (text.empty() ? "in " : " in ") + modes_text(modes);
  return text;
}

std::string detail_of(const Plan& plan, int member, const Selector* where, unsigned modes, const Details& details) {
  const Member& m = plan.members[static_cast<size_t>(member)];
  const auto known = details.find(id_of(*m.info));
  std::string detail = known != details.end() ? known->second : settings_of(m);
  const std::string place = place_text(where, modes);
  if (detail.empty() && place.empty()) detail = m.info->schema.summary;
  return shortened(place + (place.empty() || detail.empty() ? "" : "; ") + detail);
}

// Where a thing stands, without the reasons of its order.
std::string from_of(const Attached& attached) { return attached.why.substr(0, attached.why.find("; after ")); }

bool has_several(const Plan& plan, const Claim& claim) { return info_of(plan, claim.member).schema.provides.size() > 1; }

Ids points_of(const Plan& plan, int member) {
  Ids points;
  for (uint32_t point = 0; point < plan.points.size(); ++point)
    if (std::ranges::find(plan.at[point].providers, member, &Claim::member) != plan.at[point].providers.end())
      points.push_back(plan.points[point].name);
  return points;
}

std::string detail_of(const Plan& plan, const Claim& claim, const Details& details) {
  if (details.contains(id_of(plan, claim.member))) return detail_of(plan, claim.member, claim.where, claim.modes, details);
  if (has_several(plan, claim)) return shortened(join(points_of(plan, claim.member), ", "));
  if (claim.choices.empty()) return detail_of(plan, claim.member, claim.where, claim.modes, details);
  Ids choices;
  for (int choice : claim.choices) choices.push_back(id_of(plan, choice));
  return shortened("one of " + join(choices, ", "));
}

class Page {
 public:
  Page(const Plan& plan, const Details& details) : plan_(plan), details_(details) {}

  Rows rows() {
    who_does_what();
    around();
    update();
    listening();
    replaced();
    return std::move(rows_);
  }

 private:
  void row(std::string label, int member, std::string detail, std::string from) {
    rows_.push_back({"  " + std::move(label), id_of(plan_, member), std::move(detail), std::move(from)});
    shown_.insert(member);
  }
  void attached_row(std::string label, const Attached& a) {
    row(std::move(label), a.member, detail_of(plan_, a.member, a.where, a.modes, details_), from_of(a));
  }

  // Providers, and the filters that change what is built or done; those of the update have a section of their own.
  void who_does_what() {
    rows_.push_back({"who does what", "", "", "from"});
    for (uint32_t point = 0; point < plan_.points.size(); ++point) {
      for (const Claim& claim : plan_.at[point].providers) {
        const bool several = has_several(plan_, claim);  // one row for all of its points, under the name of its family
        if (several && shown_.contains(claim.member)) continue;
        row(several ? info_of(plan_, claim.member).schema.family : plan_.points[point].name, claim.member, detail_of(plan_, claim, details_),
            claim.why);
      }
      if (plan_.points[point].kind == Kind::Filter && !after_backward(point))
        for (const Attached& a : plan_.at[point].listeners) attached_row(plan_.points[point].name, a);
    }
  }

  void around() {
    bool any = false;
    for (uint32_t point = 0; point < plan_.points.size(); ++point)
      for (const Attached& a : plan_.at[point].wrappers) {
        if (!any) rows_.push_back({"around, outermost first"});
        any = true;
        attached_row(&a == &plan_.at[point].wrappers.front() ? plan_.points[point].name : "", a);
      }
  }

  void update() {
    int number = 0;
    const auto next = [&](int member, std::string detail, std::string from) {
      if (number++ == 0) rows_.push_back({"after backward, in order"});
      row(std::to_string(number), member, std::move(detail), std::move(from));
    };
    for (const Stop& stop : kAfterBackward) {
      const PointPlan& here = plan_.at[stop.point];
      for (const Claim& claim : here.providers) next(claim.member, place_text(claim.where, claim.modes), "");
      for (const Attached& a : here.listeners) next(a.member, detail_of(plan_, a.member, a.where, a.modes, details_), from_of(a));
    }
  }

  // Whoever only hears: the others have a row above.
  void listening() {
    Ids ids;
    for (uint32_t point = 0; point < plan_.points.size(); ++point)
      if (plan_.points[point].kind == Kind::Event && !after_backward(point))
        for (const Attached& a : plan_.at[point].listeners)
          if (shown_.insert(a.member).second) ids.push_back(id_of(plan_, a.member));
    if (!ids.empty()) rows_.push_back({"listening", join(ids, " ")});
  }

  void replaced() {
    for (const std::string& text : plan_.replaced) rows_.push_back({&text == &plan_.replaced.front() ? "replaced" : "", text});
  }

  const Plan& plan_;
  const Details& details_;
  Rows rows_;
  std::set<int> shown_;
};

// Under the heading of `name` it is "it".
std::string seen_from(const std::string& name, const std::string& because) {
  return because.starts_with(name + " ") ? "it" + because.substr(name.size()) : because;
}

// What stands at one stop of the update.
std::vector<int> members_at(const Plan& plan, uint32_t point) {
  std::vector<int> members;
  for (const Claim& claim : plan.at[point].providers) members.push_back(claim.member);
  for (const Attached& a : plan.at[point].listeners) members.push_back(a.member);
  return members;
}

// Before and after by the core's order, from one stop to the next that anybody stands at.
void add_core_order(Rows& rows, const Plan& plan, uint32_t point) {
  const Stop* here = std::ranges::find(kAfterBackward, point, &Stop::point);
  if (here == std::end(kAfterBackward)) return;
  for (const Stop* stop = std::begin(kAfterBackward); stop != here; ++stop)
    for (int member : members_at(plan, stop->point)) rows.push_back({"  after", id_of(plan, member), "because " + std::string(stop->because)});
  for (const Stop* stop = here + 1; stop != std::end(kAfterBackward); ++stop)
    for (int member : members_at(plan, stop->point)) rows.push_back({"  before", id_of(plan, member), "because " + std::string(here->because)});
}

void add_attached(Rows& rows, const Plan& plan, const std::string& point, const std::vector<Attached>& all) {
  for (const Attached& a : all) {
    const std::string& id = id_of(plan, a.member);
    rows.push_back({point, id + (a.band.empty() ? "" : " (" + a.band + ")"), from_of(a)});
    for (const Reason& reason : a.reasons) rows.push_back({"  after", id_of(plan, reason.after), "because " + seen_from(id, reason.because)});
    for (const Attached& later : all)
      for (const Reason& reason : later.reasons)
        if (reason.after == a.member) rows.push_back({"  before", id_of(plan, later.member), "because " + seen_from(id, reason.because)});
  }
}

}  // namespace

void print_structure(std::ostream& out, const Plan& plan, const Details& details) { print_columns(out, Page(plan, details).rows()); }

bool print_why(std::ostream& out, const Plan& plan, std::string_view point) {
  const int found = plan.points.find(point);
  if (found < 0) return false;
  const uint32_t index = static_cast<uint32_t>(found);
  const std::string& name = plan.points[index].name;
  const PointPlan& here = plan.at[index];
  Rows rows;
  for (const Claim& claim : here.providers) rows.push_back({name, id_of(plan, claim.member), claim.why});
  add_attached(rows, plan, name, here.wrappers);
  add_attached(rows, plan, name, here.listeners);
  if (rows.empty())
    rows.push_back({name, "nobody attached to it"});
  else
    add_core_order(rows, plan, index);
  print_columns(out, rows);
  return true;
}

}  // namespace mortise
