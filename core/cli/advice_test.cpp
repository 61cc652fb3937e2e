#include <cstdlib>

#include "core/cli/common.hpp"
#include "core/cli/print.hpp"
#include "core/plan/plan_test.hpp"

namespace mortise::cli {
namespace {

using test::Ids;

class Advice : public ::testing::Test {
 protected:
  void say(const std::string& id, const std::string& table, const std::string& key, const std::string& text) {
    world.plugin(id).facts[table][key] = {text, {}};
  }
  Ids advice() { return advice_of(world.plan(), world.manifest, world.catalogue); }
  test::World world = test::World::runnable();
};

TEST_F(Advice, IsWhatAPluginOfAFamilyThatNobodyFillsSays) {
  EXPECT_EQ(advice(), Ids{});
  say("gradient.clip", "advice", "text", "nothing is clipped: [gradient.clip]");
  EXPECT_EQ(advice(), Ids{"nothing is clipped: [gradient.clip]"});
  world.table("gradient.clip", 20);
  EXPECT_EQ(advice(), Ids{});
}

TEST_F(Advice, IsNotGivenToWhoeverDecided) {
  say("gradient.clip", "advice", "text", "nothing is clipped: [gradient.clip]");
  world.table("gradient.clip", 20).enabled = false;
  EXPECT_EQ(advice(), Ids{});
  world.drop("gradient.clip");
  world.plugin("gradient.noise");
  world.table("gradient.noise", 20);
  EXPECT_EQ(advice(), Ids{});
}

TEST_F(Advice, TakesTheLowestLayerForNobodysDecision) {
  world.provider("schedule.constant", {"schedule"});
  world.provider("schedule.cosine", {"schedule"});
  say("schedule.cosine", "advice", "text", "the rate stays: [schedule.cosine]");
  world.table("schedule.constant", 9, test::kDefault);
  EXPECT_EQ(advice(), Ids{"the rate stays: [schedule.cosine]"});
  world.table("schedule.cosine", 20);
  EXPECT_EQ(advice(), Ids{});
}

TEST_F(Advice, SaysWhichDevicesAreIdle) {
  say("device.cpu", "needs", "hidden_by", "MORTISE_TEST_DEVICES");
  say("device.cpu", "needs", "numbered", "/dev/no_such_device");
  world.manifest.path = "my run.toml";
  for (const auto& [shown, expected] :
       {std::pair("0", ""),
        std::pair("0,1", "1 more device of device.cpu is idle: mortise train 'my run.toml' --ranks 2"),
        std::pair("0,1,2", "2 more devices of device.cpu are idle: mortise train 'my run.toml' --ranks 3")}) {
    ::setenv("MORTISE_TEST_DEVICES", shown, 1);
    EXPECT_EQ(advice(), *expected ? Ids{expected} : Ids{}) << shown;
  }
  plan_for(2);
  EXPECT_EQ(advice(), Ids{}) << "who has several ranks has decided";
  plan_for(1);
  ::unsetenv("MORTISE_TEST_DEVICES");
}

TEST_F(Advice, OnRepeatingNamesWhoDoesNot) {
  EXPECT_EQ(repeat_text(world.plan()), "same samples in the same order; bits repeatable");
  say("model.gpt", "repeat", "differs", "backward adds with atomics");
  say("model.bert", "repeat", "differs", "not on");
  EXPECT_EQ(repeat_text(world.plan()),
            "same samples in the same order; bits may differ: model.gpt (backward adds with atomics)");
  say("data.text", "repeat", "unasked", "backward adds with atomics");
  say("optimizer.adamw", "repeat", "differs", "on another device");
  say("optimizer.adamw", "repeat", "devices", "cuda");
  EXPECT_EQ(repeat_text(world.plan()),
            "same samples in the same order; bits may differ: data.text, model.gpt (backward adds with atomics)");
}

TEST_F(Advice, OnRepeatingNamesWhomTheRunGoesWithoutForIt) {
  world.operators({"attention"});
  for (const char* id : {"attention.fast", "attention.plain", "attention.auto"}) world.provider(id, {"attention"});
  world.catalogue["attention.auto"].chooses = {"attention.fast", "attention.plain"};
  world.table("attention.auto", 20);
  say("attention.fast", "repeat", "differs", "backward adds with atomics");
  world.manifest.tables["run"]["deterministic"] = {true, {"run.toml", 2, 17, "run.deterministic"}};
  EXPECT_EQ(repeat_text(world.plan()),
            "same samples in the same order; bits repeatable, for that without attention.fast (backward adds with "
            "atomics)");
}

}  // namespace
}  // namespace mortise::cli
