#include "core/plan/compute_dtype.hpp"
#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

// A run whose optimizer is adamw at run.toml:5.
class Layers : public ::testing::Test {
 protected:
  World world = World::runnable();
};

TEST_F(Layers, ReplaceAProviderOfAnEarlierLayerWhole) {
  world.provider("schedule.constant", {"schedule"});
  world.provider("schedule.cosine", {"schedule"});
  world.table("schedule.constant", 13, kDefault);
  world.table("schedule.cosine", 20);
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "schedule"), Ids{"schedule.cosine"});
  EXPECT_EQ(plan.replaced, Ids{"schedule.constant (default.toml:13) by schedule.cosine"});
  EXPECT_EQ(at(plan, "schedule").providers[0].why, "run.toml:20");
  EXPECT_EQ(world.text(), "");
}

TEST_F(Layers, ReplaceAlsoThePlacesThatAnEarlierLayerNamed) {
  world.provider("optimizer.sgd", {"optimizer"});
  world.table("optimizer.sgd", 3, kDefault).where = where({"role:norm"});
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "optimizer"), Ids{"optimizer.adamw"});
  EXPECT_EQ(plan.replaced, Ids{"optimizer.sgd (default.toml:3) by optimizer.adamw"});
}

TEST_F(Layers, TakeOnlyThePlacesThatALaterTableNames) {
  world.provider("optimizer.sgd", {"optimizer"});
  world.table("optimizer.sgd", 0, 2).where = where({"role:norm"});
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "optimizer"), (Ids{"optimizer.sgd", "optimizer.adamw"}));
  EXPECT_TRUE(plan.replaced.empty());
  EXPECT_EQ(world.text(), "");
}

TEST_F(Layers, TakeOnlyTheModesThatALaterTableNames) {
  world.provider("sample.a", {"sample"});
  world.provider("sample.b", {"sample"});
  world.table("sample.a", 2, kDefault);
  world.table("sample.b", 20).modes = {1};
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "sample"), (Ids{"sample.b", "sample.a"}));
  EXPECT_EQ(at(plan, "sample").providers[0].modes, 2U);
  EXPECT_EQ(at(plan, "sample").providers[1].modes, 5U);
}

TEST_F(Layers, CountATableThatLostEveryModeAsReplaced) {
  for (const char* id : {"attention.auto", "attention.flash", "attention.math"}) world.provider(id, {"attention"});
  world.operators({"attention"});
  world.table("attention.auto", 10, kDefault);
  world.table("attention.flash", 20).modes = {0};
  world.table("attention.math", 22).modes = {1, 2};
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "attention"), (Ids{"attention.flash", "attention.math"}));
  EXPECT_EQ(plan.replaced, Ids{"attention.auto (default.toml:10) by attention.flash, attention.math"});
  EXPECT_EQ(world.text(), "");
}

TEST_F(Layers, TakeOnePointFromAProviderOfSeveralAndLeaveTheRest) {
  world.operators({"linear", "mlp", "norm"});
  world.provider("operators.aten", {"linear", "mlp", "norm"});
  world.provider("compile.fused", {"mlp", "norm"});
  world.table("operators.aten", 9, kDefault);
  world.table("compile.fused", 20);
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "linear"), Ids{"operators.aten"});
  EXPECT_EQ(providers(plan, "mlp"), Ids{"compile.fused"});
  EXPECT_EQ(plan.replaced, Ids{"`mlp`, `norm` of operators.aten (default.toml:9) by compile.fused"});
}

TEST_F(Layers, DropWrappersAndListenersTogetherWithTheProvider) {
  PluginInfo& zero = world.provider("parallel.zero", {"replicas"});
  zero.wraps = {{"block", "place", false}};
  zero.listens = {{"run.begin", {}, {}, false}};
  world.table("parallel.zero", 6, kDefault);
  const Plan plan = world.plan();
  EXPECT_EQ(wrappers(plan, "block"), Ids{});
  EXPECT_EQ(listeners(plan, "run.begin"), Ids{});
}

TEST_F(Layers, ATableWithAPlaceListensThereUnlessItsListenerIsEverywhere) {
  world.listener("adapter.lora", "params.declared", {}, {"trainable"});
  world.table("adapter.lora", 6).where = where({"h.0.*"});
  EXPECT_NE(at(world.plan(), "params.declared").listeners[0].where, nullptr);
  const std::string narrow = world.plan().hash;
  world.catalogue["adapter.lora"].listens[0].everywhere = true;
  EXPECT_EQ(at(world.plan(), "params.declared").listeners[0].where, nullptr);
  EXPECT_NE(world.plan().hash, narrow);
  EXPECT_EQ(world.text(), "");
}

TEST_F(Layers, DoNotSeeATableThatIsSwitchedOff) {
  world.provider("optimizer.sgd", {"optimizer"});
  world.table("optimizer.sgd", 3).enabled = false;
  EXPECT_EQ(providers(world.plan(), "optimizer"), Ids{"optimizer.adamw"});
  EXPECT_EQ(world.text(), "");
}

TEST_F(Layers, KeepWhatWasReplacedReplacedWhenItsReplacerGoes) {
  for (const char* id : {"a.one", "a.two", "a.three"}) world.plugin(id);
  world.catalogue["a.one"].schema.exclusive = {"g"};
  world.catalogue["a.two"].schema.exclusive = {"g", "h"};
  world.catalogue["a.three"].schema.exclusive = {"h"};
  world.table("a.one", 1, kDefault);
  world.table("a.two", 2);
  world.table("a.three", 3, 2);
  EXPECT_EQ(world.plan().replaced, (Ids{"a.one (default.toml:1) by a.two", "a.two (run.toml:2) by a.three"}));
}

TEST_F(Layers, RefuseTwoOpenProvidersInOne) {
  world.provider("optimizer.sgd", {"optimizer"});
  world.table("optimizer.sgd", 18);
  EXPECT_EQ(world.errors(),
            "error[two_providers]: optimizer.adamw and optimizer.sgd both provide `optimizer`\n"
            "  --> run.toml:5:1 and run.toml:18:1\n"
            "  fix: remove one; to use both, give each its parameters: [optimizer.sgd] where = \"role:matrix\"\n");
}

TEST_F(Layers, RefuseTwoProvidersOfWhatHasNoPlaces) {
  world.provider("data.table", {"data"});
  world.table("data.table", 18);
  EXPECT_EQ(world.errors(),
            "error[two_providers]: data.table and data.text both provide `data`\n"
            "  --> run.toml:18:1 and run.toml:2:1\n"
            "  fix: remove one\n");
}

TEST_F(Layers, RefuseTwoProvidersOfOneMode) {
  world.operators({"attention"});
  world.provider("attention.flash", {"attention"});
  world.provider("attention.math", {"attention"});
  world.table("attention.flash", 20).modes = {0, 1};
  world.table("attention.math", 22).modes = {1, 2};
  EXPECT_EQ(world.errors(),
            "error[two_providers]: attention.flash and attention.math both provide `attention` in eval\n"
            "  --> run.toml:20:1 and run.toml:22:1\n"
            "  fix: remove one; to use both, give each its modes or places: [attention.math] modes = [\"eval\"]\n");
}

TEST_F(Layers, DoNotRefuseTwoProvidersThatALaterOneReplaces) {
  world.provider("optimizer.sgd", {"optimizer"});
  world.provider("optimizer.lion", {"optimizer"});
  world.table("optimizer.sgd", 18);
  world.table("optimizer.lion", 0, 2);
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Layers, RefuseAnOpenTableThatItsOwnLayerLeavesNothing) {
  world.operators({"attention"});
  for (const char* id : {"attention.auto", "attention.flash", "attention.math"}) world.provider(id, {"attention"});
  world.table("attention.auto", 18);
  world.table("attention.flash", 20).modes = {0};
  world.table("attention.math", 22).modes = {1, 2};
  EXPECT_EQ(world.errors(),
            "error[left_without_place]: attention.auto is left without a place: others take `attention` in every mode\n"
            "  --> run.toml:18:1\n"
            "  fix: remove [attention.auto]\n");
}

// Two wrappers of one group, as precisions are.
class Exclusive : public Layers {
 protected:
  Exclusive() {
    for (const char* id : {"precision.bf16", "precision.fp32"})
      world.wrapper(id, "forward", "cast").schema.exclusive = {"precision.compute"};
  }
};

TEST_F(Exclusive, GroupsReplaceByLayersAsSlotsDo) {
  world.table("precision.bf16", 5, kDefault);
  world.table("precision.fp32", 9);
  const Plan plan = world.plan();
  EXPECT_EQ(wrappers(plan, "forward"), Ids{"precision.fp32"});
  EXPECT_EQ(plan.replaced, Ids{"precision.bf16 (default.toml:5) by precision.fp32"});
}

TEST_F(Exclusive, GroupsShareModes) {
  world.table("precision.bf16", 5);
  world.table("precision.fp32", 9).modes = {1};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  ASSERT_EQ(wrappers(plan, "forward"), (Ids{"precision.bf16", "precision.fp32"}));
  EXPECT_EQ(at(plan, "forward").wrappers[0].modes, 5U) << "train and sample: eval was taken";
  EXPECT_EQ(at(plan, "forward").wrappers[1].modes, 2U);
}

TEST_F(Exclusive, WhatIsComputedInIsAFactOrTheValueOfTheKeyThatItNames) {
  EXPECT_EQ(planned_compute_dtype(world.plan(), 0), "");
  world.catalogue["precision.bf16"].facts["frame"]["compute_dtype"] = {std::string("bf16"), {}};
  world.catalogue["precision.fp32"].facts["frame"]["compute_dtype"] = {std::string("dtype"), {}};
  world.table("precision.bf16", 5);
  PluginTable& fp32 = world.table("precision.fp32", 9);
  fp32.modes = {1};
  fp32.values["dtype"] = {std::string("fp16"), {}};
  const Plan plan = world.plan();
  EXPECT_EQ(planned_compute_dtype(plan, 0), "bf16");
  EXPECT_EQ(planned_compute_dtype(plan, 1), "fp16");
}

TEST_F(Exclusive, GroupsSharePlaces) {
  world.table("precision.bf16", 5);
  PluginTable& fp32 = world.table("precision.fp32", 9);
  fp32.where = where({"role:norm"});
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  const auto& items = at(plan, "forward").wrappers;
  ASSERT_EQ(items.size(), 2U);
  ASSERT_EQ(items[0].except.size(), 1U);
  EXPECT_EQ(items[0].except[0].where->match, Ids{"role:norm"});
  EXPECT_TRUE(items[1].except.empty());
}

TEST_F(Exclusive, GroupsRefuseTwoInOneLayer) {
  world.table("precision.bf16", 5);
  world.table("precision.fp32", 9);
  EXPECT_EQ(world.errors(),
            "error[exclusive]: precision.bf16 and precision.fp32 exclude each other: both are of the group "
            "`precision.compute`\n"
            "  --> run.toml:5:1 and run.toml:9:1\n"
            "  fix: remove one; to use both, give each its modes or places: [precision.fp32] modes = [\"eval\"]\n");
}

}  // namespace
}  // namespace mortise::test
