// [parameters.NAME]: whom a rule takes, which of two rules counts, and what it writes.
#include <gtest/gtest.h>

#include "core/declare/declared.hpp"
#include "core/plan/plan_test.hpp"

namespace mortise {
namespace {

using test::where;

struct Rules : ::testing::Test {
  void SetUp() override {
    plan.at.resize(plan.points.size());
    plan.members = {{&model, nullptr}};
    param("wte.weight", "embedding");
    for (const char* block : {"h.0", "h.1", "h.2"}) {
      param(std::string(block) + ".fc.weight", "matrix");
      param(std::string(block) + ".fc.bias", "vector");
    }
    param("steps", "buffer");
  }
  void param(const std::string& name, const std::string& role) {
    mortise_param& p = declaration.params.emplace_back();
    p.index = static_cast<uint32_t>(declaration.params.size() - 1);
    p.name = name;
    p.role = role;
    p.info.trainable = role != "buffer";
    p.info.value_dtype = p.info.master_dtype = p.info.grad_dtype = MORTISE_F32;
  }
  mortise_param& of(const std::string& name) { return *declaration.find(name); }
  ParameterRule& rule(const std::string& name, Selector selector, const std::string& key, Value value, int layer = 1) {
    ParameterRule r;
    r.name = name;
    r.where = std::move(selector);
    r.layer = layer;
    r.origin = {"run.toml", 10 * static_cast<int>(manifest.rules.size()) + 1, 1, "parameters." + name};
    value.origin = {"run.toml", r.origin.line + 1, 1, ""};
    r.values[key] = std::move(value);
    return manifest.rules.emplace_back(r);
  }
  void apply() {
    apply_tag_rules(declaration, manifest);
    apply_parameter_rules(declaration, manifest, plan);
  }
  Diagnostic refused() {
    try {
      apply();
    } catch (const Failure& f) {
      return f.diagnostic;
    }
    ADD_FAILURE() << "not refused";
    return {};
  }
  std::string frozen() const {
    std::string names;
    for (const auto& p : declaration.params)
      if (!p.info.trainable) names += p.name + " ";
    return names;
  }

  Declaration declaration;
  Manifest manifest;
  PluginInfo model;
  Plan plan;
};

Value yes() { return {true, {}}; }
Value number(double v) { return {v, {}}; }
Value tags(const std::string& one) { return {std::vector<Value>{{one, {}}}, {}}; }

TEST_F(Rules, TakeWhatTheirPlacesSay) {
  rule("some", where({"h.*.weight"}, {"h.1.*"}), "freeze", yes());
  apply();
  EXPECT_EQ(frozen(), "h.0.fc.weight h.2.fc.weight steps ");
}

TEST_F(Rules, TakeByRoleAndCount) {
  rule("second", where({"role:vector"}, {}, 2, 1), "freeze", yes());
  apply();
  EXPECT_EQ(frozen(), "h.1.fc.bias steps ");
}

TEST_F(Rules, WriteWhatTheySay) {
  rule("head", where({"h.0.fc.weight"}), "lr", number(0.5)).values["weight_decay"] = number(0.25);
  rule("slow", where({"wte.*"}), "lr_scale", number(0.125));
  rule("wide", where({"h.2.*"}), "dtype", {std::string("fp64"), {}});
  apply();
  EXPECT_EQ(of("h.0.fc.weight").lr, 0.5);
  EXPECT_EQ(of("h.0.fc.weight").weight_decay, 0.25);
  EXPECT_LT(of("h.0.fc.bias").lr, 0) << "the family's";
  EXPECT_EQ(of("wte.weight").lr_scale, 0.125);
  EXPECT_EQ(of("h.2.fc.bias").info.master_dtype, uint32_t{MORTISE_F64});
  EXPECT_EQ(of("h.2.fc.bias").info.value_dtype, uint32_t{MORTISE_F64});
  EXPECT_EQ(of("h.2.fc.bias").info.grad_dtype, uint32_t{MORTISE_F64});
  EXPECT_EQ(of("h.1.fc.bias").info.master_dtype, uint32_t{MORTISE_F32});
}

TEST_F(Rules, MakeNoBufferTrainable) {
  rule("all", where({"*"}), "freeze", {false, {}});
  apply();
  EXPECT_EQ(frozen(), "steps ");
}

TEST_F(Rules, OfAHigherLayerCountWhateverTheirOrder) {
  for (const bool first : {true, false}) {
    manifest.rules.clear();
    if (first) rule("mine", where({"h.1.*"}), "weight_decay", number(0.5), 2);
    rule("shipped", where({"role:vector"}), "weight_decay", number(0), 0);
    if (!first) rule("mine", where({"h.1.*"}), "weight_decay", number(0.5), 2);
    apply();
    EXPECT_EQ(of("h.1.fc.bias").weight_decay, 0.5) << first;
    EXPECT_EQ(of("h.0.fc.bias").weight_decay, 0) << first;
  }
}

TEST_F(Rules, OfOneLayerMustAgree) {
  rule("a", where({"h.1.*"}), "lr", number(0.5));
  rule("b", where({"role:vector"}), "lr", number(0.5));
  EXPECT_NO_THROW(apply());
  manifest.rules[1].values["lr"].data = 0.25;
  const Diagnostic d = refused();
  EXPECT_EQ(d.code, "two_rules");
  EXPECT_EQ(d.message, "parameters.a and parameters.b set `lr` of h.1.fc.bias differently");
  ASSERT_EQ(d.positions.size(), 2u);
  EXPECT_EQ(d.positions[0].line, 2);
  EXPECT_EQ(d.positions[1].line, 12);
}

TEST_F(Rules, RefuseARateAndAScaleOfIt) {
  rule("a", where({"h.1.*"}), "lr", number(0.5));
  rule("b", where({"h.1.fc.bias"}), "lr_scale", number(0.5), 2);
  EXPECT_EQ(refused().message, "`lr` and `lr_scale` are both set for h.1.fc.bias");
}

TEST_F(Rules, SelectByTheTagsOfOthers) {
  rule("slow", where({"tag:late"}), "lr", number(0.5));  // stands before the rule that gives the tag
  rule("late", where({"h.2.*"}), "tags", tags("late"));
  apply();
  EXPECT_EQ(of("h.2.fc.weight").lr, 0.5);
  EXPECT_LT(of("h.1.fc.weight").lr, 0);
}

TEST_F(Rules, AddTheTagsOfEachOther) {
  rule("late", where({"h.2.*"}), "tags", tags("late"));
  rule("bias", where({"role:vector"}), "tags", tags("bias"));
  rule("above", where({"h.2.fc.bias"}), "tags", tags("last"), 2);
  apply();
  EXPECT_EQ(of("h.2.fc.bias").tags, (std::vector<std::string>{"late", "bias", "last"}));
}

TEST_F(Rules, ThatTakeNothingAreRefused) {
  rule("typo", where({"h.7.*"}), "freeze", yes());
  const Diagnostic d = refused();
  EXPECT_EQ(d.code, "matches_nothing");
  EXPECT_EQ(d.message, "`h.7.*` matches no parameter");
}

}  // namespace
}  // namespace mortise
