// What `mortise plan` prints of the structure, and the reasons behind an order.
#include <algorithm>
#include <ostream>
#include <set>

#include "core/cli/columns.hpp"
#include "core/cli/print.hpp"
#include "core/plan/facts.hpp"
#include "core/plan/words.hpp"

namespace mortise::cli {
using namespace words;
namespace {

using Details = std::map<std::string, std::string>;
using Ids = std::vector<std::string>;

// The core's own order once backward is done, and why each comes before the next.
struct Stop {
  Point point;
  std::string because;
};
const Stop kAfterBackward[] = {
    {kReplicas, "because gradients are whole before anything reads them (core)"},
    {kStepVerdict, "because the verdict is decided before anything is changed (core)"},
    {kGradTransform, "because gradients are final before the optimizer reads them (core)"},
    {kOptimizer, "because the update is done before anyone is told (core)"},
    {kStepCommit, ""},
};
const Stop* stop_of(uint32_t point) { return std::ranges::find(kAfterBackward, point, &Stop::point); }
bool is_stop(uint32_t point) { return stop_of(point) != std::end(kAfterBackward); }

// The third column takes what the others leave of `width`, and at least this.
constexpr size_t kLeastDetail = 56;

std::string shortened(const std::string& text, size_t most) {
  if (text_width(text) <= most) return text;
  size_t bytes = 0;
  for (size_t width = 0; width < most; ++bytes) width += (text[bytes] & 0xC0) != 0x80;
  return text.substr(0, bytes - 1) + "…";
}

void shorten_details(Rows& rows, size_t width) {
  size_t widths[4] = {};
  const auto is_full = [](const auto& row) { return row.size() == 4; };
  for (const auto& row : rows)
    for (size_t i = 0; is_full(row) && i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  const size_t others = widths[0] + widths[1] + widths[3] + 3 * kColumnGap;
  const size_t most = std::max(kLeastDetail, width > others ? width - others : 0);
  for (auto& row : rows)
    if (is_full(row)) row[2] = shortened(row[2], most);
}

// The keys that a manifest set; plugin.toml's own values go without saying.
std::string settings_of(const Member& member) {
  Ids settings;
  if (member.table)
    for (const auto& [key, value] : member.table->values)
      if (value.is_set() && value.origin && !value.origin.file.starts_with("plugin.toml"))
        settings.push_back(key + " " + value.text());
  return join(settings, ", ");
}

std::string place_text(const Selector* where, unsigned modes) {
  Ids words;
  if (where) words.push_back("at " + (where->match.empty() ? "*" : join(where->match, ", ")));
  if (where && !where->except.empty()) words.push_back("except " + join(where->except, ", "));
  if (where && where->every > 1) words.push_back("one in " + std::to_string(where->every));
  if (modes != kAllModes) words.push_back("in " + join(mode_names(modes), ", "));
  return join(words, " ");
}

class Page {
 public:
  Page(const Plan& plan, const Details& details) : plan_(plan), details_(details) {
    who_does_what();
    around();
    update();
    listening();
    for (const std::string& text : plan.replaced)
      rows.push_back({&text == &plan.replaced.front() ? "replaced" : "", text});
  }
  Rows rows;

 private:
  // What a later stage learned, else what the plan knows, else the settings, else the plugin's summary.
  std::string detail(int member, const Selector* where, unsigned modes, std::string text, bool learned = true) const {
    const auto known = details_.find(id_of(plan_, member));
    if (known != details_.end() && learned) text = known->second;
    if (text.empty()) text = settings_of(plan_.members[member]);
    const std::string place = place_text(where, modes), covers = covers_of(member);
    if (!covers.empty()) text += (text.empty() ? "" : "; ") + covers;
    if (text.empty() && place.empty()) text = info_of(plan_, member).schema.summary;
    return place + (place.empty() || text.empty() ? "" : "; ") + text;
  }
  void row(const std::string& label, int member, std::string text, std::string from) {
    rows.push_back({"  " + label, id_of(plan_, member), std::move(text), std::move(from)});
    shown_.insert(member);
  }
  void row(const std::string& label, const Attached& a) {
    // Of who provides something too, what was learned is of that.
    row(label, a.member, detail(a.member, a.where, a.modes, "", info_of(plan_, a.member).schema.provides.empty()),
        a.why);
  }

  // One row for all points of a plugin, under the name of its family where they are several.
  void row(uint32_t point, const Claim& claim) {
    const PluginInfo& info = info_of(plan_, claim.member);
    const bool several = info.schema.provides.size() > 1;
    if (several && shown_.contains(claim.member)) return;
    Ids names;
    for (int choice : claim.choices) names.push_back(id_of(plan_, choice));
    std::string text = names.empty() ? "" : "one of " + join(names, ", ");
    if (several) text = points_of(claim.member);
    // "REASON; fallback of FILE:LINE; of its table nothing is taken: …"
    const size_t reason = claim.stands_in ? claim.why.find("; fallback of ") : std::string::npos;
    if (reason != std::string::npos && text.empty()) text = claim.why.substr(0, reason);
    row(several ? info.schema.family : plan_.points[point].name, claim.member,
        detail(claim.member, claim.where, claim.modes, text),
        reason != std::string::npos ? claim.why.substr(reason + 2) : claim.why);
  }
  // What of the vocabulary its layers compute themselves.
  std::string covers_of(int member) const {
    Ids covered;
    for (const std::string& slot : info_of(plan_, member).schema.provides)
      for (const std::string& point : covered_by(info_of(plan_, member), slot))
        if (!contains(covered, point)) covered.push_back(point);
    return covered.empty() ? "" : "covers " + join(covered, ", ");
  }
  std::string points_of(int member) const {
    Ids points;
    for (uint32_t i = 0; i < plan_.points.size(); ++i)
      if (std::ranges::count(plan_.at[i].providers, member, &Claim::member)) points.push_back(plan_.points[i].name);
    return join(points, ", ");
  }

  // Providers, and the filters that change what is built or done; those of the update have a section of their own.
  void who_does_what() {
    rows.push_back({"who does what", "", "", "from"});
    for (uint32_t i = 0; i < plan_.points.size(); ++i) {
      for (const Claim& claim : plan_.at[i].providers) row(i, claim);
      if (plan_.points[i].kind == Kind::Filter && !is_stop(i))
        for (const Attached& a : plan_.at[i].listeners) row(plan_.points[i].name, a);
    }
  }

  void around() {
    const size_t before = rows.size();
    std::set<int> of_all;
    for (uint32_t i = 0; i < plan_.points.size(); ++i)
      for (const Attached& a : plan_.at[i].wrappers) {
        if (a.of_all && !of_all.insert(a.member).second) continue;
        if (rows.size() == before) rows.push_back({"around, outermost first"});
        const bool first = &a == &*std::ranges::find(plan_.at[i].wrappers, a.of_all, &Attached::of_all);
        row(a.of_all ? "every call" : first ? plan_.points[i].name : "", a);
      }
  }

  void update() {
    rows.push_back({"after backward, in order"});
    int number = 0;
    for (const Stop& stop : kAfterBackward) {
      for (const Claim& claim : plan_.at[stop.point].providers)
        row(std::to_string(++number), claim.member, place_text(claim.where, claim.modes), "");
      for (const Attached& a : plan_.at[stop.point].listeners) row(std::to_string(++number), a);
    }
  }

  // Whoever only hears: the others have a row above. In the order in which a record is told, which nearly all hear.
  void listening() {
    Ids ids;
    const auto add = [&](const PointPlan& here) {
      for (const Attached& a : here.listeners)
        if (shown_.insert(a.member).second) ids.push_back(id_of(plan_, a.member));
    };
    add(plan_.at[kRecord]);
    std::ranges::for_each(plan_.at, add);
    if (!ids.empty()) rows.push_back({"listening", join(ids, " ")});
  }

  const Plan& plan_;
  const Details& details_;
  std::set<int> shown_;
};

// Before and after by the core's own order.
void add_core_order(Rows& rows, const Plan& plan, uint32_t point) {
  const Stop* here = stop_of(point);
  if (!is_stop(point)) return;
  for (const Stop& stop : kAfterBackward) {
    const auto add = [&](const auto& all) {
      for (const auto& one : all)
        rows.push_back({&stop < here ? "  after" : "  before", id_of(plan, one.member),
                        &stop < here ? stop.because : here->because});
    };
    if (&stop == here) continue;
    add(plan.at[stop.point].providers);
    add(plan.at[stop.point].listeners);
  }
}

void add_attached(Rows& rows, const Plan& plan, const std::string& point, const std::vector<Attached>& all) {
  for (const Attached& a : all) {
    const std::string& id = id_of(plan, a.member);
    const auto add = [&](const char* how, int other, const std::string& because) {  // under its own heading it is "it"
      rows.push_back({how, id_of(plan, other),
                      "because " + (because.starts_with(id + " ") ? "it" + because.substr(id.size()) : because)});
    };
    rows.push_back({point, id + (a.band.empty() ? "" : " (" + a.band + ")"), a.why});
    for (const Reason& reason : a.reasons) add("  after", reason.after, reason.because);
    for (const Attached& later : all)
      for (const Reason& reason : later.reasons)
        if (reason.after == a.member) add("  before", later.member, reason.because);
  }
}

}  // namespace

void print_structure(std::ostream& out, const Plan& plan, const Details& details, size_t width) {
  Rows rows = Page(plan, details).rows;
  shorten_details(rows, width);
  print_columns(out, rows);
}

bool print_why(std::ostream& out, const Plan& plan, std::string_view point) {
  const int found = plan.points.find(point);
  if (found < 0) return false;
  const uint32_t index = static_cast<uint32_t>(found);
  const std::string& name = plan.points[index].name;
  Rows rows;
  for (const Claim& claim : plan.at[index].providers) rows.push_back({name, id_of(plan, claim.member), claim.why});
  for (const Member& member : plan.members)
    for (const std::string& slot : member.info->schema.provides)
      if (contains(covered_by(*member.info, slot), name))
        rows.push_back({"  covered", id_of(*member.info), "inside its `" + slot + "`"});
  add_attached(rows, plan, name, plan.at[index].wrappers);
  add_attached(rows, plan, name, plan.at[index].listeners);
  if (rows.empty()) rows.push_back({name, "nobody attached to it"});
  else add_core_order(rows, plan, index);
  print_columns(out, rows);
  return true;
}

}  // namespace mortise::cli
