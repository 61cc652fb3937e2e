// What plugin.toml says besides where a plugin attaches: devices, covered points, every call, recording.
#include "core/plan/facts.hpp"

#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

Value list(const std::vector<std::string>& names) {
  std::vector<Value> values;
  for (const std::string& name : names) values.push_back({name, {}});
  return {values, {}};
}

struct Facts : testing::Test {
  World world = World::runnable();
};

// ---- devices ----

TEST_F(Facts, OfAPluginThatProvidesNothingSayItsDevices) {
  world.provider("device.cuda", {"device"});
  world.wrapper("memory.cuda", "block", "retain").devices = {"cuda"};
  world.table("memory.cuda", 20);
  EXPECT_EQ(world.errors(),
            "error[wrong_device]: memory.cuda works on cuda, this run on device.cpu\n"
            "  --> run.toml:20:1 and run.toml:3:1\n"
            "  fix: --use device.cuda, or leave out [memory.cuda]\n");
  EXPECT_EQ(world.report.exit_code(), kExitUnavailable);
  world.can_start = [](const PluginInfo& info) { return std::string(info.schema.id == "device.cuda" ? "no GPU" : ""); };
  EXPECT_TRUE(world.errors().ends_with("  fix: leave out [memory.cuda]\n")) << world.text();
  const auto table =
      std::ranges::find(world.manifest.plugins, "memory.cuda", [](const PluginTable& t) { return t.schema->id; });
  table->origin = {"command line: --use memory.cuda", 0, 0, "memory.cuda"};
  EXPECT_TRUE(world.errors().ends_with("  fix: leave out --use memory.cuda\n")) << world.text();
  world.catalogue["memory.cuda"].devices = {"cpu", "cuda"};
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Facts, OfAnOptimizerAreOfWhereUpdatesAreComputed) {
  world.catalogue["device.cpu"].facts["device"]["kind"] = {std::string("cuda"), {}};
  world.listener("place.host", "params.declared", {}, {"update_on_host"});
  world.table("place.host", 20);
  Value& devices = world.catalogue["optimizer.adamw"].facts["optimizer"]["devices"];
  devices = list({"cpu"});
  EXPECT_EQ(world.errors(), "") << "though the run is on a GPU";
  devices = list({"cuda"});
  EXPECT_TRUE(
      world.errors().starts_with("error[wrong_device]: optimizer.adamw works on cuda, and place.host has updates "
                                 "computed on the host's processor\n"))
      << world.errors();
}

TEST_F(Facts, OfACandidateOnAnotherDeviceLeaveItOut) {
  world.operators({"attention"});
  world.provider("attention.fast", {"attention"}).facts["attention"]["devices"] = list({"cuda"});
  world.provider("attention.plain", {"attention"});
  world.provider("attention.auto", {"attention"}).chooses = {"attention.fast", "attention.plain"};
  world.table("attention.auto", 20);
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  const std::vector<int>& choices = at(plan, "attention").providers[0].choices;
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(plan.members[static_cast<size_t>(choices[0])].info->schema.id, "attention.plain");
  world.catalogue["attention.auto"].chooses = {"attention.fast"};
  EXPECT_TRUE(world.errors().starts_with(
      "error[wrong_device]: all that attention.auto chooses from works on cuda, this run on device.cpu\n"))
      << world.text();
}

// ---- covers ----

struct Covered : Facts {
  Covered() {
    world.operators({"mlp", "linear"});
    world.provider("layer.fused", {"mlp"}).facts["mlp"]["covers"] = list({"linear"});
    world.table("layer.fused", 20);
    world.provider("operators.plain", {"linear"});
    world.table("operators.plain", 2, kDefault);
  }
  std::string below(const std::string& path) {
    const Plan plan = world.plan();
    EXPECT_EQ(world.text(), "");
    const auto fused =
        std::ranges::find(plan.members, "layer.fused", [](const Member& m) { return m.info->schema.id; });
    const AttachedBelow found =
        attached_below(plan, static_cast<int>(fused - plan.members.begin()), "mlp", path, /*train*/ 0);
    return found.member < 0 ? "" : found.point + " " + plan.members[static_cast<size_t>(found.member)].info->schema.id;
  }
};

TEST_F(Covered, PointsAreOperatorsOfTheRun) {
  EXPECT_EQ(world.errors(), "");
  world.catalogue["layer.fused"].facts["mlp"]["covers"] = list({"liner"});
  EXPECT_NE(world.errors().find("error[unknown_point]: layer.fused covers `liner`, which is no operator of this run"),
            std::string::npos)
      << world.text();
  EXPECT_NE(world.text().find("fix: it is called `linear`"), std::string::npos) << world.text();
  world.catalogue["layer.fused"].facts["mlp"]["covers"] = list({"mlp"});
  EXPECT_NE(world.errors().find("covers `mlp`, which it provides"), std::string::npos) << world.text();
  world.catalogue["layer.fused"].facts["mlp"]["covers"] = list({"block"});
  EXPECT_NE(world.errors().find("covers `block`"), std::string::npos) << "a call of the core";
}

TEST_F(Covered, WhatIsThereByDefaultDoesNotMind) { EXPECT_EQ(below("h.0.mlp"), ""); }

TEST_F(Covered, AWrapperBelowIsFoundWhereItsSelectorReaches) {
  world.wrapper("quant.eight", "linear", "cast");
  PluginTable& table = world.table("quant.eight", 30);
  EXPECT_EQ(below("h.0.mlp"), "linear quant.eight");
  table.where = where({"h.1.*"});
  EXPECT_EQ(below("h.0.mlp"), "");
  EXPECT_EQ(below("h.1.mlp"), "linear quant.eight");
  table.where = where({"h.*.mlp.up"});
  EXPECT_EQ(below("h.0.mlp"), "linear quant.eight");
  table.where = where({"h.*.mlp"});
  EXPECT_EQ(below("h.0.mlp"), "") << "the unit itself, which is no linear";
  table.where = where({"slot:linear"}, {"h.0.*"});
  EXPECT_EQ(below("h.0.mlp"), "");
  EXPECT_EQ(below("h.1.mlp"), "linear quant.eight");
  table.where = where({"slot:norm"});
  EXPECT_EQ(below("h.1.mlp"), "");
  table.where.reset();
  table.modes = {1};
  EXPECT_EQ(below("h.0.mlp"), "") << "in evaluations alone";
}

TEST_F(Covered, AProviderThatSomebodyWroteIsFound) {
  world.provider("linear.eight", {"linear"});
  PluginTable& table = world.table("linear.eight", 30);
  EXPECT_EQ(below("h.0.mlp"), "linear linear.eight");
  table.where = where({"head"});
  EXPECT_EQ(below("h.0.mlp"), "");
}

// ---- every call ----

TEST_F(Facts, OfAWatcherOfEveryCallAreWrappersOfEachPoint) {
  world.operators({"linear"});
  world.provider("operators.plain", {"linear"});
  world.table("operators.plain", 19);
  world.plugin("profile.all").wraps = {{"*", "watch", false, {}}, {"block", "watch", false, {}}};
  world.table("profile.all", 20);
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  for (uint32_t i = 0; i < plan.points.size(); ++i) {
    const bool wrapped = plan.points[i].kind == Kind::Call || plan.points[i].kind == Kind::Operator;
    EXPECT_EQ(plan.at[i].wrappers.size(), wrapped ? 1u : 0u) << plan.points[i].name;
    EXPECT_EQ(wrapped && plan.at[i].wrappers[0].of_all, wrapped && plan.points[i].name != "block");
  }
}

TEST_F(Facts, OfEveryCallAreForWhoWatches) {
  world.plugin("profile.all").wraps = {{"*", "adapt", false, {}}};
  world.table("profile.all", 20);
  EXPECT_EQ(world.errors(),
            "error[wrong_kind]: profile.all wraps `*`, every call, in `adapt`\n"
            "  --> run.toml:20:1\n"
            "  at: plugins/profile.all.toml\n"
            "  fix: band = \"watch\": who changes something names the points\n");
  world.catalogue["profile.all"].wraps = {{"*", "watch", true, {}}};
  EXPECT_NE(world.errors().find("and says `capture`"), std::string::npos) << world.text();
}

TEST_F(Facts, OfEveryCallMayHaveModes) {
  world.plugin("profile.all").wraps = {{"*", "watch", false, {}}};
  world.table("profile.all", 20).modes = {1};
  EXPECT_EQ(world.errors(), "");
}

// ---- recording ----

struct Recorded : Facts {
  Recorded() {
    world.wrapper("step.graph", "step", "capture");
    world.table("step.graph", 20);
  }
  void record(const std::string& point) { world.catalogue["step.graph"].wraps[0].point = point; }
  // What is said of another plugin; "": nothing.
  std::string said() {
    const std::string text = world.errors(), sign = ", and ";
    const size_t at = text.find(sign);
    return at == text.npos ? text : text.substr(at + sign.size(), text.find('\n') - at - sign.size());
  }
};

TEST_F(Facts, WhoWaitsCannotBeRecorded) {
  world.wrapper("step.graph", "step", "capture");
  world.table("step.graph", 20);
  EXPECT_EQ(world.errors(), "");
  world.catalogue["optimizer.adamw"].syncs = {"verdict"};
  EXPECT_EQ(world.errors(),
            "error[not_recordable]: step.graph records `step`, and optimizer.adamw waits for the device (syncs "
            "`verdict`)\n"
            "  --> run.toml:20:1 and run.toml:5:1\n"
            "  fix: leave out [optimizer.adamw] or [step.graph]\n");
  world.catalogue["optimizer.adamw"].syncs = {"step.end"};
  EXPECT_EQ(world.errors(), "") << "outside of what is recorded";
}

TEST_F(Recorded, WrappersAndListenersInsideSayThatTheyCanBe) {
  world.wrapper("activation.own", "block", "repeat");
  world.table("activation.own", 21);
  EXPECT_EQ(said(), "activation.own wraps `block` without `capture = true`");
  world.catalogue["activation.own"].wraps[0].modes = {"eval", "sample"};
  EXPECT_EQ(said(), "") << "no step calls it";
  world.catalogue["activation.own"].wraps[0].modes = {};
  world.catalogue["activation.own"].wraps[0].capture = true;
  EXPECT_EQ(said(), "");
  world.listener("gradient.own", "grad.transform", {}, {"multiplier"});
  world.table("gradient.own", 22);
  EXPECT_EQ(said(), "gradient.own listens to `grad.transform` without `capture = true`");
  record("forward");
  EXPECT_EQ(said(), "") << "the update comes after it";
  record("backward");
  world.catalogue["activation.own"].wraps[0].capture = false;
  EXPECT_EQ(said(), "") << "nor does `backward` call blocks";
}

TEST_F(Recorded, WhoWatchesFromOutsideIsNotInside) {
  world.wrapper("metric.own", "step", "watch");
  world.table("metric.own", 21);
  EXPECT_EQ(said(), "");
  world.catalogue["metric.own"].wraps[0].band = "adapt";
  EXPECT_EQ(said(), "metric.own wraps `step` without `capture = true`");
}

TEST_F(Recorded, WhoWatchesEveryCallHearsOfNone) {
  world.plugin("profile.all").wraps = {{"*", "watch", false, {}}};
  world.table("profile.all", 21);
  EXPECT_EQ(said(), "profile.all wraps every call, and hears of none that is replayed");
}

}  // namespace
}  // namespace mortise::test
