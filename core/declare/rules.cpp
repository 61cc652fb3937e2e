// [parameters.NAME]: freeze, rates, decay, dtype and tags by name.
#include <map>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/declare/declared.hpp"
#include "core/plan/facts.hpp"

namespace mortise {
namespace {

void write(mortise_param& p, const std::string& key, const Value& v) {
  if (key == "freeze") p.info.trainable = !v.as_bool() && p.role != "buffer";
  else if (key == "lr") p.lr = v.as_float();
  else if (key == "lr_scale") p.lr_scale = v.as_float();
  else if (key == "weight_decay") p.weight_decay = v.as_float();
  else if (key == "dtype") p.info.value_dtype = p.info.master_dtype = p.info.grad_dtype = dtype_named(v.as_text());
}

struct Written {
  const ParameterRule* rule;
  const Value* value;
};

[[noreturn]] void refuse(const std::string& code, const std::string& message, const std::vector<Position>& at,
                         const std::string& fix) {
  Diagnostic d = mistake(code, message, {}, fix);
  d.positions = at;
  throw Failure(d);
}

}  // namespace

void apply_tag_rules(Declaration& d, const Manifest& manifest) {
  const auto elements = d.param_elements();  // as they are before any rule: rules see no tag of each other here
  for (const auto& rule : manifest.rules)
    if (const auto tags = rule.values.find("tags"); tags != rule.values.end())
      for (const size_t i : select(rule.where, elements))
        for (const auto& t : tags->second.as_list()) d.params[i].add_tag(t.as_text());
}

void check_named_parameters(const Declaration& d, const Plan& plan) {
  const auto elements = d.param_elements();
  for (const Member& member : plan.members) {
    const Value* names = value_of_fact(member, "names", "parameters");
    if (!names) continue;
    for (const Value& name : names->as_list()) {
      Selector selector;
      selector.match = {name.as_text()};
      if (select(selector, elements).empty())
        refuse("matches_nothing",
               "`" + name.as_text() + "` of " + member.info->schema.id + "." +
                   fact_of(*member.info, "names", "parameters")->as_text() + " matches no parameter",
               {name.origin}, "all names: mortise plan --weights");
    }
  }
}

void apply_parameter_rules(Declaration& d, const Manifest& manifest, const Plan& plan) {
  std::map<std::pair<uint32_t, std::string>, Written> written;
  const auto elements = d.param_elements();
  for (const auto& rule : manifest.rules) {
    const auto taken = select(rule.where, elements);
    if (taken.empty() && rule.layer > 0) {  // what default.toml says is of every model, whatever it has
      Report report;
      PointPlan claim;
      Claim& of = claim.providers.emplace_back();
      of.where = &rule.where;
      of.open = false;
      of.origin = rule.origin;
      assign(claim, plan, elements, MORTISE_TRAIN, "parameter", "parameters." + rule.name, report);
      for (const auto& found : report.all())
        if (found.code == "matches_nothing") throw Failure(found);
    }
    for (const size_t i : taken)
      for (const auto& [key, value] : rule.values) {
        if (key == "tags" || key == "where") continue;
        auto [at, first] = written.try_emplace({static_cast<uint32_t>(i), key}, Written{&rule, &value});
        if (first) continue;
        const ParameterRule& other = *at->second.rule;
        if (other.layer == rule.layer && at->second.value->text() != value.text())
          refuse("two_rules",
                 "parameters." + other.name + " and parameters." + rule.name + " set `" + key + "` of " +
                     d.params[i].name + " differently",
                 {at->second.value->origin, value.origin}, "give one of them another `where`");
        if (rule.layer >= other.layer) at->second = {&rule, &value};
      }
  }
  for (const auto& [where, w] : written) {
    mortise_param& p = d.params[where.first];
    if (where.second == "lr" && written.count({where.first, "lr_scale"}))
      refuse("two_rules", "`lr` and `lr_scale` are both set for " + p.name, {w.value->origin}, "keep one of them");
    write(p, where.second, *w.value);
  }
}

}  // namespace mortise
