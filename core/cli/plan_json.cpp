// The plan as a tree for programs, with every reason.
#include <algorithm>

#include "core/cli/json.hpp"
#include "core/cli/print.hpp"
#include "core/plan/facts.hpp"
#include "core/plan/words.hpp"

namespace mortise::cli {
using namespace words;
namespace {

template <class List, class Element>
Json array(const List& list, Element element) {
  Json all = Json::array();
  for (const auto& item : list) all.push_back(element(item));
  return all;
}

Json json(const Selector* where) {
  if (!where) return nullptr;
  return {{"match", where->match}, {"except", where->except}, {"every", where->every}, {"from", where->from}};
}

Json json(const Value& value) {
  if (!value.is_set()) return nullptr;
  if (std::holds_alternative<std::vector<Value>>(value.data))
    return array(value.as_list(), [](const Value& item) { return json(item); });
  if (std::holds_alternative<std::string>(value.data)) return value.as_text();
  if (std::holds_alternative<Selector>(value.data)) return json(&value.as_selector());
  if (std::holds_alternative<bool>(value.data)) return value.as_bool();
  if (std::holds_alternative<int64_t>(value.data)) return value.as_int();
  if (std::holds_alternative<double>(value.data)) return value.as_float();
  return value.text();  // an amount, with its unit
}

class Tree {
 public:
  explicit Tree(const Plan& plan) : plan_(plan) {}

  Json members() const {
    return array(plan_.members, [&](const Member& member) { return json_of(member); });
  }
  Json points() const {
    Json points = Json::array();
    for (uint32_t i = 0; i < plan_.points.size(); ++i) {
      const PointPlan& here = plan_.at[i];
      if (here.providers.empty() && here.wrappers.empty() && here.listeners.empty()) continue;
      const auto attached = [&](const Attached& a) { return json_of(a); };
      points.push_back({{"name", plan_.points[i].name},
                        {"providers", array(here.providers,
                                            [&](const Claim& claim) { return json_of(claim, plan_.points[i].name); })},
                        {"wrappers", array(here.wrappers, attached)},
                        {"listeners", array(here.listeners, attached)}});
    }
    return points;
  }

 private:
  // What is said of claims and attachments alike.
  Json place(int member, const Selector* where, unsigned modes) const {
    return {{"id", id_of(plan_, member)}, {"where", json(where)}, {"modes", mode_names(modes)}};
  }
  Json json_of(const Claim& claim, const std::string& slot) const {
    Json all = place(claim.member, claim.where, claim.modes);
    all["choices"] = array(claim.choices, [&](int choice) { return id_of(plan_, choice); });
    all["covers"] = covered_by(info_of(plan_, claim.member), slot);
    all["why"] = claim.why;
    return all;
  }
  Json json_of(const Attached& a) const {
    Json all = place(a.member, a.where, a.modes);
    if (!a.band.empty()) all["band"] = a.band;
    all["after"] =
        array(a.reasons, [&](const Reason& r) { return Json{{"id", id_of(plan_, r.after)}, {"because", r.because}}; });
    all["from"] = short_text(a.origin);
    return all;
  }
  Json json_of(const Member& member) const {
    Json values = Json::object();
    if (member.table)
      for (const auto& [key, value] : member.table->values) values[key] = json(value);
    return {{"id", id_of(*member.info)},
            {"version", member.info->version},
            {"values", values},
            {"from", member.table ? Json(short_text(member.table->origin)) : Json()}};
  }

  const Plan& plan_;
};

}  // namespace

Json plan_json(const Plan& plan) {
  const Tree tree(plan);
  return {{"hash", plan.hash}, {"members", tree.members()}, {"points", tree.points()}, {"replaced", plan.replaced}};
}

}  // namespace mortise::cli
