// Where plugins are looked for, and how a run is gone on with.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/cli/common.hpp"
#include "core/manifest/testing.hpp"

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

}  // namespace
}  // namespace mortise::cli
