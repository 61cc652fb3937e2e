// The plan as a tree for programs, with every reason.
#include "core/cli/print.hpp"
#include "core/plan/words.hpp"

namespace mortise::cli {
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
  return "{\"match\":" + strings(where->match) + ",\"except\":" + strings(where->except) +
         ",\"every\":" + std::to_string(where->every) + ",\"from\":" + std::to_string(where->from) + "}";
}

std::string json(const Value& value) {
  if (!value.is_set()) return "null";
  if (std::holds_alternative<std::vector<Value>>(value.data))
    return array(value.as_list(), [](const Value& item) { return json(item); });
  if (std::holds_alternative<std::string>(value.data)) return json_string(value.as_text());
  if (std::holds_alternative<Selector>(value.data)) return json(&value.as_selector());
  if (std::holds_alternative<Amount>(value.data)) return json_string(value.text());
  return value.text();  // booleans and numbers are written alike
}

class Tree {
 public:
  explicit Tree(const Plan& plan) : plan_(plan) {}

  std::string members() const {
    return array(plan_.members, [&](const Member& member) { return json_of(member); });
  }
  std::string points() const {
    std::vector<std::string> points;
    for (uint32_t i = 0; i < plan_.points.size(); ++i) {
      const PointPlan& here = plan_.at[i];
      if (here.providers.empty() && here.wrappers.empty() && here.listeners.empty()) continue;
      const auto attached = [&](const Attached& a) { return json_of(a); };
      points.push_back("{\"name\":" + json_string(plan_.points[i].name) +
                       ",\"providers\":" + array(here.providers, [&](const Claim& claim) { return json_of(claim); }) +
                       ",\"wrappers\":" + array(here.wrappers, attached) +
                       ",\"listeners\":" + array(here.listeners, attached) + "}");
    }
    return "[" + join(points, ",") + "]";
  }

 private:
  // What is said of claims and attachments alike.
  std::string place(int member, const Selector* where, unsigned modes) const {
    return "{\"id\":" + json_string(id_of(plan_, member)) + ",\"where\":" + json(where) +
           ",\"modes\":" + strings(mode_names(modes));
  }
  std::string json_of(const Claim& claim) const {
    return place(claim.member, claim.where, claim.modes) +
           ",\"choices\":" + array(claim.choices, [&](int choice) { return json_string(id_of(plan_, choice)); }) +
           ",\"why\":" + json_string(claim.why) + "}";
  }
  std::string json_of(const Attached& a) const {
    return place(a.member, a.where, a.modes) + (a.band.empty() ? "" : ",\"band\":" + json_string(a.band)) +
           ",\"after\":" +
           array(a.reasons,
                 [&](const Reason& r) {
                   return "{\"id\":" + json_string(id_of(plan_, r.after)) + ",\"because\":" + json_string(r.because) +
                          "}";
                 }) +
           ",\"from\":" + json_string(short_text(a.origin)) + "}";
  }
  std::string json_of(const Member& member) const {
    std::vector<std::string> values;
    if (member.table)
      for (const auto& [key, value] : member.table->values) values.push_back(json_string(key) + ":" + json(value));
    return "{\"id\":" + json_string(id_of(*member.info)) + ",\"version\":" + json_string(member.info->version) +
           ",\"values\":{" + join(values, ",") +
           "},\"from\":" + (member.table ? json_string(short_text(member.table->origin)) : "null") + "}";
  }

  const Plan& plan_;
};

}  // namespace

std::string plan_json(const Plan& plan) {
  const Tree tree(plan);
  return "{\"hash\":" + json_string(plan.hash) + ",\"members\":" + tree.members() + ",\"points\":" + tree.points() +
         ",\"replaced\":" + strings(plan.replaced) + "}";
}

}  // namespace mortise::cli
