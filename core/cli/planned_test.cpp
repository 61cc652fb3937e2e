// Where plugins are looked for, and how a run is gone on with.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/cli/common.hpp"
#include "core/declare/device.hpp"
#include "core/manifest/testing.hpp"
#include "core/plan/devices.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

class FoldersOfPlugins : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    for (const char* name : {"own", "said", "home/.local/share/mortise/plugins"}) fs::create_directories(name);
    ::setenv("HOME", (folder / "home").c_str(), 1);
    ::setenv("MORTISE_PLUGIN_PATH", (":" + (folder / "said").string() + ":").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("MORTISE_PLUGIN_PATH");
    ManifestTest::TearDown();
  }
  std::vector<std::string> searched(const std::vector<std::string>& flags) {
    Arguments args;
    if (!flags.empty()) args.flags["--plugin-path"] = flags;
    std::vector<std::string> found;
    Report report;
    cli::catalogue(args, nullptr, found, report);
    if (!found.empty()) found.pop_back();  // those of the installation
    for (std::string& each : found) each = fs::path(each).lexically_relative(folder).string();
    return found;
  }
};

using Words = std::vector<std::string>;

TEST_F(FoldersOfPlugins, AreThoseOfTheCommandLineOfTheEnvironmentAndOfThePerson) {
  EXPECT_EQ(searched({"own"}), (Words{"own", "said", "home/.local/share/mortise/plugins"}));
  EXPECT_EQ(searched({}), (Words{"said", "home/.local/share/mortise/plugins"})) << "an empty word is no folder";
}

TEST_F(FoldersOfPlugins, AreSearchedOnceUnderWhateverName) {
  fs::create_directory_symlink("own", "link");
  EXPECT_EQ(searched({"own", "link", "own/../said"}),
            (Words{"own", "own/../said", "home/.local/share/mortise/plugins"}));
}

// Whoever goes on with a run has to name those again that nothing else names.
TEST_F(FoldersOfPlugins, AreNamedAgainWhereNobodyKnowsThem) {
  Planned p;
  p.manifest =
      read("[plugins]\npath = [\"" + (folder / "own").string() + "\", \"" + (folder / "said").string() + "\"]\n");
  ASSERT_EQ(errors, "");
  EXPECT_EQ(resume_command(p, "a run"), "mortise resume 'a run' --plugin-path " + (folder / "own").string());
}

TEST(Plugins, StartWhereTheirFileIs) {
  PluginInfo info;
  EXPECT_EQ(can_start(info), "") << "it needs none";
  info.facts["needs"]["file"].data = std::string("/dev/null");
  EXPECT_EQ(can_start(info), "");
  info.facts["needs"]["file"].data = std::string("/dev/no_such_device");
  EXPECT_EQ(can_start(info), "no /dev/no_such_device");
  info.facts["needs"]["why"].data = std::string("there is no such device");
  EXPECT_EQ(can_start(info), "there is no such device");
}

TEST(Plugins, StartWhereNoVariableHidesTheirDevices) {
  PluginInfo info;
  info.facts["needs"]["hidden_by"].data = std::string("MORTISE_TEST_DEVICES");
  ::unsetenv("MORTISE_TEST_DEVICES");
  EXPECT_EQ(can_start(info), "");
  for (const auto& [shown, hides] : {std::pair("", true), std::pair("-1", true), std::pair("0", false)}) {
    ::setenv("MORTISE_TEST_DEVICES", shown, 1);
    EXPECT_EQ(can_start(info), hides ? "MORTISE_TEST_DEVICES hides it" : "") << shown;
  }
  ::unsetenv("MORTISE_TEST_DEVICES");
}

// Files as a driver makes them, one a device, and others beside them.
class Devices : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    info.facts["needs"]["hidden_by"].data = std::string("MORTISE_TEST_DEVICES");
    info.facts["needs"]["numbered"].data = (folder / "gpu").string();
    ::unsetenv("MORTISE_TEST_DEVICES");
  }
  void TearDown() override {
    ::unsetenv("MORTISE_TEST_DEVICES");
    ManifestTest::TearDown();
  }
  void make(const Words& files) {
    for (const std::string& file : files) std::ofstream(folder / file) << "";
  }
  // Of a rank on this host, whose manifest says device.index = 1.
  int index_of(int local_rank, int local_size) {
    const Manifest manifest = read("[device]\nindex = 1\n");
    Plan plan;
    plan.at.resize(kDevice + 1);
    plan.members.push_back({&info});
    plan.at[kDevice].providers.emplace_back();
    plan.at[kDevice].providers.back().stands_in = stands_in;
    World world;
    world.local_rank = local_rank;
    world.local_size = local_size;
    return device_index(manifest, plan, world);
  }
  PluginInfo info;
  bool stands_in = false;
};

TEST_F(Devices, AreCountedWithoutOpeningOne) {
  EXPECT_EQ(devices_seen(info), 0) << "nobody knows";
  make({"gpu1", "gpu3", "gpu10", "gpuctl", "gpu-2", "gpu"});
  EXPECT_EQ(devices_seen(info), 3);
  for (const auto& [shown, n] : {std::pair("", 0), std::pair("1", 1), std::pair("0,1", 2), std::pair("0,-1,2", 1),
                                 std::pair("GPU-1f,GPU-2e,MIG-3", 3)}) {
    ::setenv("MORTISE_TEST_DEVICES", shown, 1);
    EXPECT_EQ(devices_seen(info), n) << shown;
  }
  EXPECT_EQ(devices_seen(PluginInfo()), 0) << "a plugin that says nothing of them";
}

TEST_F(Devices, AreOneForEachRank) {
  make({"gpu0", "gpu1"});
  plan_for(2);
  EXPECT_EQ(can_start(info), "");
  plan_for(3);
  EXPECT_EQ(can_start(info), "each of the 3 ranks here needs its own, and there are 2");
  ::setenv("MORTISE_TEST_DEVICES", "1", 1);
  EXPECT_EQ(can_start(info), "each of the 3 ranks here needs its own, and there is 1");
  ::unsetenv("MORTISE_TEST_DEVICES");
  make({"gpu2"});
  EXPECT_EQ(can_start(info), "");
  EXPECT_EQ(can_start(info, 1), "each of the 3 ranks here needs its own, from number 1 on, and there are 3");
  plan_for(2);
  EXPECT_EQ(can_start(info, 1), "");
  plan_for(1);
  EXPECT_EQ(can_start(info), "");
}

TEST_F(Devices, AreTakenByTheRanksOfAHostFromTheIndexOn) {
  EXPECT_EQ(index_of(2, 4), 1) << "nobody knows how many there are";
  make({"gpu0", "gpu1", "gpu2"});
  EXPECT_EQ(index_of(0, 1), 1);
  EXPECT_EQ(index_of(0, 2), 1);
  EXPECT_EQ(index_of(1, 2), 2);
  ::setenv("MORTISE_TEST_DEVICES", "2", 1);
  EXPECT_EQ(index_of(1, 2), 1) << "one that is its own";
  ::unsetenv("MORTISE_TEST_DEVICES");
  stands_in = true;
  EXPECT_EQ(index_of(1, 2), 0) << "the index was that of another device";
}

}  // namespace
}  // namespace mortise::cli
