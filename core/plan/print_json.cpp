// The plan for programs: the same tree that people are shown, with every reason.
#include <sstream>

#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// [f(a),f(b)]
template <class List, class Text>
std::string array(const List& list, Text text) {
  std::vector<std::string> parts;
  for (const auto& item : list) parts.push_back(text(item));
  return "[" + join(parts, ",") + "]";
}

std::string strings(const std::vector<std::string>& list) {
  return array(list, [](const std::string& text) { return json_string(text); });
}

std::string json(const Selector* where) {
  if (!where) return "null";
  return "{\"match\":" + strings(where->match) + ",\"except\":" + strings(where->except) + ",\"every\":" + std::to_string(where->every) +
         ",\"from\":" + std::to_string(where->from) + "}";
}

std::string json(const Value& value) {
  if (!value.is_set()) return "null";
  if (std::holds_alternative<std::vector<Value>>(value.data)) return array(value.as_list(), [](const Value& item) { return json(item); });
  if (std::holds_alternative<std::string>(value.data)) return json_string(value.as_text());
  if (std::holds_alternative<Selector>(value.data)) return json(&value.as_selector());
  if (std::holds_alternative<Amount>(value.data)) return json_string(value.text());
  return value.text();  // booleans and numbers are written alike
}

std::string json_modes(unsigned modes) {
  std::vector<std::string> names;
  for (unsigned mode = 0; mode < std::size(kModes); ++mode)
    if (modes >> mode & 1) names.emplace_back(kModes[mode]);
  return strings(names);
}

std::string json(const Plan& plan, const Claim& claim) {
  return "{\"id\":" + json_string(id_of(plan, claim.member)) + ",\"where\":" + json(claim.where) + ",\"modes\":" + json_modes(claim.modes) +
         ",\"choices\":" + array(claim.choices, [&](int choice) { return json_string(id_of(plan, choice)); }) + ",\"why\":" + json_string(claim.why) +
         "}";
}

std::string json(const Plan& plan, const Attached& a) {
  return "{\"id\":" + json_string(id_of(plan, a.member)) + (a.band.empty() ? "" : ",\"band\":" + json_string(a.band)) +
         ",\"where\":" + json(a.where) + ",\"modes\":" + json_modes(a.modes) + ",\"after\":" +
         array(a.reasons,
               [&](const Reason& reason) {
                 return "{\"id\":" + json_string(id_of(plan, reason.after)) + ",\"because\":" + json_string(reason.because) + "}";
               }) +
         ",\"from\":" + json_string(short_text(a.origin)) + "}";
}

std::string json(const Member& member) {
  std::vector<std::string> values;
  if (member.table)
    for (const auto& [key, value] : member.table->values) values.push_back(json_string(key) + ":" + json(value));
  return "{\"id\":" + json_string(id_of(*member.info)) + ",\"version\":" + json_string(member.info->version) +
         ",\"from\":" + (member.table ? json_string(short_text(member.table->origin)) : "null") + ",\"values\":{" + join(values, ",") + "}}";
}

}  // namespace

std::string plan_json(const Plan& plan) {
  std::vector<std::string> points;
  for (uint32_t i = 0; i < plan.points.size(); ++i) {
    const PointPlan& here = plan.at[i];
    if (here.providers.empty() && here.wrappers.empty() && here.listeners.empty()) continue;
    const auto attached = [&](const Attached& a) { return json(plan, a); };
    points.push_back("{\"name\":" + json_string(plan.points[i].name) +
                     ",\"providers\":" + array(here.providers, [&](const Claim& c) { return json(plan, c); }) +
                     ",\"wrappers\":" + array(here.wrappers, attached) + ",\"listeners\":" + array(here.listeners, attached) + "}");
  }
  return "{\"hash\":" + json_string(plan.hash) + ",\"members\":" + array(plan.members, [](const Member& member) { return json(member); }) +
         ",\"points\":[" + join(points, ",") + "],\"replaced\":" + strings(plan.replaced) + "}";
}

}  // namespace mortise
