#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

std::string no_driver(const PluginInfo& info) {
  return info.schema.name == "cuda" || info.schema.name == "flash" ? "no NVIDIA driver" : "";
}

// A machine without a GPU, and [device.cuda] at default.toml:4.
class Machine : public ::testing::Test {
 protected:
  Machine() {
    world.can_start = no_driver;
    world.drop("device.cpu");
    world.provider("device.cuda", {"device"});
    cuda = &world.table("device.cuda", 4, kDefault);
  }
  World world = World::runnable();
  PluginTable* cuda = nullptr;
};

TEST_F(Machine, UsesTheFallbackThatWasWritten) {
  cuda->fallback = {"device.tpu", "device.cpu"};  // the first is not installed
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(providers(plan, "device"), Ids{"device.cpu"});
  EXPECT_EQ(at(plan, "device").providers[0].why,
            "device.cuda cannot run here: no NVIDIA driver; fallback of default.toml:4");
  EXPECT_TRUE(at(plan, "device").providers[0].stands_in);
  EXPECT_FALSE(at(plan, "data").providers[0].stands_in);
}

TEST_F(Machine, GivesAStandInNoTable) {
  cuda->fallback = {"device.cpu"};
  const Plan plan = world.plan();
  EXPECT_EQ(plan.members[static_cast<size_t>(at(plan, "device").providers[0].member)].table, nullptr);
}

TEST_F(Machine, RefusesADeviceThatCannotRunWithoutAFallback) {
  EXPECT_EQ(world.errors(),
            "error[device_unusable]: device.cuda cannot run: no NVIDIA driver\n"
            "  --> default.toml:4:1\n"
            "  fix: --use device.cpu\n");
  EXPECT_EQ(world.report.exit_code(), kExitUnavailable);
}

TEST_F(Machine, RefusesAFallbackOfAnotherSlot) {
  cuda->fallback = {"optimizer.adamw"};
  const std::string text = world.errors();
  EXPECT_EQ(text.substr(0, text.find("\n\n") + 1),
            "error[wrong_fallback]: device.cuda falls back to optimizer.adamw, which does not provide `device`\n"
            "  --> default.toml:4:1\n"
            "  fix: name another: mortise plugin list device\n");
}

TEST_F(Machine, RefusesAWrapperThatCannotRun) {
  cuda->fallback = {"device.cpu"};
  world.wrapper("compile.cuda", "step", "capture");
  world.table("compile.cuda", 20);
  EXPECT_EQ(world.errors(),
            "error[device_unusable]: compile.cuda cannot run: no NVIDIA driver\n"
            "  --> run.toml:20:1\n"
            "  fix: --without compile.cuda\n");
}

TEST_F(Machine, AttachesAStandInOnce) {
  cuda->fallback = {"device.cpu"};
  world.catalogue["device.cpu"].listens = {{"run.begin", {}, {}, false}};
  world.provider("sample.cuda", {"sample"});
  world.catalogue["device.cpu"].schema.provides = {"device", "sample"};
  world.table("sample.cuda", 5, kDefault).fallback = {"device.cpu"};
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "sample"), Ids{"device.cpu"});
  EXPECT_EQ(listeners(plan, "run.begin"), Ids{"device.cpu"});
}

// attention.auto chooses among flash, which cannot run here, math and one that is not installed.
class Chooser : public ::testing::Test {
 protected:
  Chooser() {
    world.can_start = no_driver;
    world.operators({"attention"});
    for (const char* id : {"attention.auto", "attention.flash", "attention.math", "attention.slow"})
      world.provider(id, {"attention"});
    world.catalogue["attention.auto"].chooses = {"attention.cudnn", "attention.flash", "attention.slow",
                                                 "attention.math"};
    world.table("attention.auto", 10, kDefault);
  }
  Ids choices(const Plan& plan) {
    Ids found;
    for (int member : at(plan, "attention").providers.front().choices)
      found.push_back(plan.members[static_cast<size_t>(member)].info->schema.id);
    return found;
  }
  World world = World::runnable();
};

TEST_F(Chooser, MayTakeWhatIsInstalledAndCanStartInItsOwnOrder) {
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(choices(plan), (Ids{"attention.slow", "attention.math"}));
  EXPECT_EQ(providers(plan, "attention"), Ids{"attention.auto"});
}

TEST_F(Chooser, LeavesOutWhatWasSwitchedOff) {
  world.table("attention.slow", 20).enabled = false;
  EXPECT_EQ(choices(world.plan()), Ids{"attention.math"});
}

TEST_F(Chooser, FindsTheTableOfACandidateThatIsOn) {
  world.table("attention.math", 20).modes = {1};
  const Plan plan = world.plan();
  EXPECT_EQ(providers(plan, "attention"), (Ids{"attention.math", "attention.auto"}));
  EXPECT_NE(plan.members[static_cast<size_t>(at(plan, "attention").providers[0].member)].table, nullptr);
  EXPECT_EQ(plan.members[static_cast<size_t>(at(plan, "attention").providers[1].choices[0])].table, nullptr)
      << "attention.slow has no table";
}

TEST_F(Chooser, DoesNotAttachWhatItMayChoose) {
  world.catalogue["attention.math"].listens = {{"run.begin", {}, {}, false}};
  world.catalogue["attention.math"].requires_ = {"unheard_of"};
  EXPECT_EQ(listeners(world.plan(), "run.begin"), Ids{});
  EXPECT_EQ(world.text(), "");
}

TEST_F(Chooser, IsRefusedWithNothingToChooseFrom) {
  world.catalogue["attention.auto"].chooses = {"attention.cudnn", "attention.flash"};
  EXPECT_EQ(world.errors(),
            "error[nothing_to_choose]: attention.auto has nothing to choose from for `attention`\n"
            "  --> default.toml:10:1\n"
            "  fix: none of attention.cudnn, attention.flash is installed, on and able to run here\n");
}

}  // namespace
}  // namespace mortise::test
