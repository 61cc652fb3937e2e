#include "core/plan/facts.hpp"
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

TEST_F(Machine, SaysWhatOfTheTableIsLeftOut) {
  cuda->fallback = {"device.cpu"};
  auto& keys = world.catalogue["device.cuda"].schema.config.keys;
  keys["index"].default_value = cuda->values["index"] = {int64_t{0}, {"plugin.toml of device.cuda", 9, 1, "index"}};
  keys["wait"].default_value = {std::string("block"), {"plugin.toml of device.cuda", 12, 1, "wait"}};
  cuda->values["wait"] = {std::string("spin"), {"run.toml", 5, 1, "wait"}};
  EXPECT_EQ(at(world.plan(), "device").providers[0].why,
            "device.cuda cannot run here: no NVIDIA driver; fallback of default.toml:4; "
            "of its table nothing is taken: wait");
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

TEST_F(Machine, SaysWhatIsSwitchedOff) {
  cuda->off = {"parameters.no_decay", "optimizer.adamw", "device.cpu"};  // the first two provide no device
  world.manifest.refused = {{"device.cpu", "--set device.cpu.enabled=false"}};
  EXPECT_EQ(world.errors(),
            "error[device_unusable]: device.cuda cannot run: no NVIDIA driver\n"
            "  --> default.toml:4:1\n"
            "  fix: leave out --set device.cpu.enabled=false\n");
  world.manifest.refused = {};
  world.table("device.cpu", 30).enabled = false;
  EXPECT_TRUE(world.errors().ends_with("  fix: leave out `enabled = false` of [device.cpu] (run.toml:30)\n"))
      << world.text();
}

TEST_F(Machine, ProposesTheRestForTheDeviceThatItProposes) {
  world.provider("comm.wire", {"comm"}).devices = {"cuda"};
  world.provider("comm.zair", {"comm"}).devices = {"cpu"};
  world.can_start = [](const PluginInfo& info) {
    return std::string(info.schema.id == "comm.local" ? "it serves one rank, and there are 2" : no_driver(info));
  };
  const std::string text = world.errors();
  EXPECT_NE(text.find("  fix: --use device.cpu\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  fix: --use comm.zair\n"), std::string::npos) << text;
}

TEST_F(Machine, NamesAnotherBeforeOneThatTheCommandLineRefuses) {
  world.manifest.refused = {{"device.cpu", "--without device.cpu"}};
  EXPECT_TRUE(world.errors().ends_with("  fix: --use device.cpu in place of --without device.cpu\n")) << world.text();
  world.provider("device.elsewhere", {"device"}).devices = {"cuda"};
  world.provider("device.spare", {"device"});
  EXPECT_TRUE(world.errors().ends_with("  fix: --use device.spare\n")) << world.text();
  world.provider("device.a_spare", {"device"});
  EXPECT_TRUE(world.errors().ends_with("  fix: --use device.a_spare\n")) << world.text();
}

TEST_F(Machine, NamesWhatTheCommandLineHasToLose) {
  cuda->origin = {"command line: --use device.cuda", 0, 0, "device.cuda"};
  EXPECT_TRUE(world.errors().ends_with("  fix: --use device.cpu in place of --use device.cuda\n")) << world.text();
  cuda->fallback = {"device.cpu"};
  world.wrapper("compile.cuda", "step", "capture");
  world.table("compile.cuda", 20).origin = {"command line: --use compile.cuda", 0, 0, "compile.cuda"};
  EXPECT_TRUE(world.errors().ends_with("  fix: leave out --use compile.cuda\n")) << world.text();
}

TEST_F(Machine, SaysItWhereWhatIsLeftWorksElsewhere) {
  cuda->fallback = {"device.cpu"};
  world.can_start = [](const PluginInfo& info) {
    return std::string(info.schema.id == "comm.local" ? "it serves one rank, and there are 2" : no_driver(info));
  };
  world.provider("comm.wire", {"comm"}).devices = {"cuda"};
  world.provider("comm.air", {"comm"}).devices = {"cpu"};
  world.drop("comm.local");
  PluginTable& local = world.table("comm.local", 5, kDefault);
  local.fallback = {"comm.wire"};
  local.off = {"comm.air"};
  world.manifest.refused = {{"comm.air", "--without comm.air"}};
  const std::string text = world.errors();
  EXPECT_TRUE(text.starts_with("error[wrong_device]: comm.wire works on cuda, this run on device.cpu: ")) << text;
  EXPECT_TRUE(text.ends_with("  fix: leave out --without comm.air\n")) << text;
}

TEST_F(Machine, RefusesAFallbackOfAnotherSlot) {
  cuda->fallback = {"optimizer.adamw"};
  const std::string text = world.errors();
  EXPECT_EQ(text.substr(0, text.find("\n\n") + 1),
            "error[wrong_fallback]: device.cuda falls back to optimizer.adamw, which does not provide `device`\n"
            "  --> default.toml:4:1\n"
            "  fix: name another: mortise plugin list device\n");
  world.can_start = [](const PluginInfo&) { return std::string(); };  // also where nobody needs it
  EXPECT_TRUE(world.errors().starts_with("error[wrong_fallback]: device.cuda falls back to optimizer.adamw")) << text;
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

TEST_F(Machine, SaysWhyItIsNotThatOfWhoWorksOnNoOther) {
  cuda->fallback = {"device.cpu"};
  world.listener("metric.cuda_only", "record").devices = {"cuda"};
  world.can_start = [](const PluginInfo& info) { return std::string(info.schema.id == "device.cuda" ? "no GPU" : ""); };
  world.table("metric.cuda_only", 20);
  EXPECT_EQ(world.errors(),
            "error[wrong_device]: metric.cuda_only works on cuda, this run on device.cpu: device.cuda cannot run here: "
            "no GPU; fallback of default.toml:4\n"
            "  --> run.toml:20:1 and default.toml:4:1\n"
            "  fix: leave out [metric.cuda_only]\n");
}

// The same machine with a GPU.
class GpuByDefault : public Machine {
 protected:
  GpuByDefault() {
    world.can_start = [](const PluginInfo&) { return std::string(); };
    cuda->fallback = {"device.cpu"};
  }
  std::vector<std::string>& devices_of(const std::string& id) { return world.catalogue[id].devices; }
};

TEST_F(GpuByDefault, IsTakenWhereAllWorkOnIt) {
  devices_of("optimizer.adamw") = {"cpu", "cuda"};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(providers(plan, "device"), Ids{"device.cuda"});
  EXPECT_EQ(at(plan, "device").providers[0].why, "default.toml:4");
  EXPECT_EQ(plan.device, "cuda");
}

TEST_F(GpuByDefault, GivesWayToADeviceOnWhichAllWork) {
  devices_of("optimizer.adamw") = {"cpu"};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(providers(plan, "device"), Ids{"device.cpu"});
  EXPECT_EQ(at(plan, "device").providers[0].why,
            "device.cuda is not taken: optimizer.adamw works on cpu; fallback of default.toml:4");
  EXPECT_EQ(plan.device, "cpu");
}

// comm.local serves one rank; who stands in for it serves the CPU.
TEST_F(GpuByDefault, GivesWayToAStandInsDevice) {
  world.can_start = [](const PluginInfo& info) {
    return std::string(info.schema.id == "comm.local" ? "it serves one rank, and there are 2" : "");
  };
  world.provider("comm.wire", {"comm"}).devices = {"cpu"};
  world.drop("comm.local");
  world.table("comm.local", 5, kDefault).fallback = {"comm.wire"};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(providers(plan, "comm"), Ids{"comm.wire"});
  EXPECT_EQ(at(plan, "device").providers[0].why,
            "device.cuda is not taken: comm.wire works on cpu; fallback of default.toml:4");
}

// Of two, the one that works on the device, whichever stands first; on another device the other.
TEST_F(GpuByDefault, ChoosesTheStandInThatWorksOnIt) {
  world.can_start = [](const PluginInfo& info) {
    return std::string(info.schema.id == "comm.local" ? "it serves one rank, and there are 2" : "");
  };
  world.provider("comm.wire", {"comm"}).devices = {"cpu"};
  world.provider("comm.link", {"comm"}).devices = {"cuda"};
  world.drop("comm.local");
  for (const Ids& order : {Ids{"comm.wire", "comm.link"}, Ids{"comm.link", "comm.wire"}}) {
    world.drop("comm.local");
    world.table("comm.local", 5, kDefault).fallback = order;
    const Plan plan = world.plan();
    EXPECT_EQ(world.text(), "");
    EXPECT_EQ(providers(plan, "comm"), Ids{"comm.link"});
    EXPECT_EQ(providers(plan, "device"), Ids{"device.cuda"});
  }
  devices_of("optimizer.adamw") = {"cpu"};
  EXPECT_EQ(providers(world.plan(), "comm"), Ids{"comm.wire"});
  world.drop("device.cuda");
  world.table("device.cpu", 9);
  EXPECT_EQ(providers(world.plan(), "comm"), Ids{"comm.wire"});
}

TEST_F(GpuByDefault, StaysWhereItWasAskedFor) {
  cuda->fallback.clear();
  devices_of("optimizer.adamw") = {"cpu"};
  EXPECT_EQ(world.errors(),
            "error[wrong_device]: optimizer.adamw works on cpu, this run on device.cuda\n"
            "  --> run.toml:5:1 and default.toml:4:1\n"
            "  fix: --use device.cpu, or another plugin: mortise plugin list optimizer\n");
  cuda->origin = {"command line: --use device.cuda", 0, 0, "device.cuda"};
  world.manifest.refused = {{"device.cpu", "--without device.cpu"}};
  EXPECT_TRUE(
      world.errors().ends_with("  fix: --use device.cpu in place of --use device.cuda and --without device.cpu, "
                               "or another plugin: mortise plugin list optimizer\n"))
      << world.text();
}

TEST_F(GpuByDefault, ThatIsNotTakenKeepsNobodyOutForItsBits) {
  world.manifest.tables["run"]["deterministic"] = {true, {"run.toml", 2, 17, "run.deterministic"}};
  world.operators({"attention"});
  for (const char* id : {"attention.fast", "attention.plain"}) world.provider(id, {"attention"});
  auto& repeat = world.catalogue["attention.fast"].facts["repeat"];
  repeat["differs"] = {std::string("adds in any order"), {}};
  repeat["devices"] = {std::vector<Value>{{std::string("cuda"), {}}}, {}};
  world.table("attention.fast", 20).fallback = {"attention.plain"};
  EXPECT_EQ(providers(world.plan(), "attention"), Ids{"attention.plain"});
  devices_of("optimizer.adamw") = {"cpu"};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(providers(plan, "attention"), Ids{"attention.fast"});
  EXPECT_EQ(plan.kept_out, Ids{});
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

// A run on device.cpu or device.cuda, whose bits must repeat; attention.fast does not repeat on a GPU.
class Repeating : public ::testing::Test {
 protected:
  Repeating() {
    world.operators({"attention"});
    for (const char* id : {"attention.fast", "attention.plain"}) world.provider(id, {"attention"});
    differ("attention.fast", "differs");
    asked() = {true, {"run.toml", 2, 17, "run.deterministic"}};
    on_a_gpu();
  }
  Value& asked() { return world.manifest.tables["run"]["deterministic"]; }
  void differ(const std::string& id, const std::string& fact) {
    auto& repeat = world.catalogue[id].facts["repeat"];
    repeat[fact] = {std::string("adds in any order"), {}};
    repeat["devices"] = {std::vector<Value>{{std::string("cuda"), {}}}, {}};
  }
  void on_a_gpu() {
    world.drop("device.cpu");
    world.provider("device.cuda", {"device"});
    world.table("device.cuda", 3);
  }
  void on_the_cpu() {
    world.drop("device.cuda");
    world.table("device.cpu", 3);
  }
  World world = World::runnable();
};

TEST_F(Repeating, RefusesWhoDoesNotRepeatOnTheDeviceOfTheRun) {
  world.table("attention.fast", 20);
  EXPECT_EQ(world.errors(),
            "error[not_repeatable]: attention.fast does not give the same bits in every run: adds in any order\n"
            "  --> run.toml:2:17 and run.toml:20:1\n"
            "  fix: --use attention.plain\n"
            "       deterministic = false\n");
  EXPECT_EQ(world.report.exit_code(), kExitUsage);
  on_the_cpu();
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Repeating, KnowsADeviceByItsKind) {
  world.table("attention.fast", 20);
  world.drop("device.cuda");
  world.provider("device.own", {"device"}).facts["device"]["kind"] = {std::string("cuda"), {}};
  world.table("device.own", 3);
  EXPECT_TRUE(world.errors().starts_with("error[not_repeatable]: attention.fast")) << world.text();
}

TEST_F(Repeating, KnowsADeviceThatStandsIn) {
  world.table("attention.fast", 20);
  world.drop("device.cuda");
  world.table("device.cuda", 3).fallback = {"device.cpu"};
  world.can_start = no_driver;
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(plan.device, "cpu");
}

TEST_F(Repeating, RefusesNobodyWhoRepeatsWhereItIsAsked) {
  world.catalogue["attention.fast"].facts.clear();
  differ("attention.fast", "unasked");
  world.table("attention.fast", 20);
  EXPECT_EQ(world.errors(), "");
  const PluginInfo& fast = world.catalogue["attention.fast"];
  EXPECT_EQ(why_bits_differ(world.plan(), fast), "");
  asked().data = false;
  EXPECT_EQ(why_bits_differ(world.plan(), fast), "adds in any order");
  on_the_cpu();
  EXPECT_EQ(why_bits_differ(world.plan(), fast), "");
}

TEST_F(Repeating, TakesTheFallbackThatRepeats) {
  world.provider("attention.faster", {"attention"});
  differ("attention.faster", "differs");
  world.table("attention.fast", 20).fallback = {"attention.faster", "attention.plain"};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(providers(plan, "attention"), Ids{"attention.plain"});
  EXPECT_EQ(at(plan, "attention").providers[0].why,
            "attention.fast does not give the same bits in every run: adds in any order; fallback of run.toml:20");
  EXPECT_EQ(plan.kept_out, Ids{"attention.fast (adds in any order)"});
  asked().data = false;
  EXPECT_EQ(providers(world.plan(), "attention"), Ids{"attention.fast"});
}

TEST_F(Repeating, ChoosesAmongThoseThatRepeat) {
  world.provider("attention.auto", {"attention"}).chooses = {"attention.fast", "attention.plain"};
  world.table("attention.auto", 20);
  const auto choices = [&](const Plan& plan) {
    Ids found;
    for (int member : at(plan, "attention").providers.front().choices)
      found.push_back(plan.members[static_cast<size_t>(member)].info->schema.id);
    return found;
  };
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(choices(plan), Ids{"attention.plain"});
  EXPECT_EQ(plan.kept_out, Ids{"attention.fast (adds in any order)"});
  asked().data = false;
  EXPECT_EQ(choices(world.plan()), (Ids{"attention.fast", "attention.plain"}));
  EXPECT_EQ(world.plan().kept_out, Ids{});
  asked().data = true;
  world.catalogue["attention.auto"].chooses = {"attention.fast"};
  EXPECT_EQ(world.errors(),
            "error[nothing_to_choose]: attention.auto has nothing to choose from for `attention`\n"
            "  --> run.toml:20:1\n"
            "  fix: none of attention.fast is installed, on and able to run here; out for run.deterministic: "
            "attention.fast (adds in any order)\n");
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
