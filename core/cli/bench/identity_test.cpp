#include "core/cli/bench/identity.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace mortise::cli {
namespace {

namespace fs = std::filesystem;

struct Identity : ::testing::Test {
  Identity() { fs::create_directories(folder); }
  ~Identity() override { fs::remove_all(folder); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder / name) << text; }
  fs::path folder = fs::temp_directory_path() / ("mortise_identity_" + std::to_string(getpid()));
  std::map<std::string, PluginInfo> plugins;
};

TEST_F(Identity, OfAMachineNamesTheDevicesThatPluginsKnow) {
  const std::string without = machine_of(plugins);
  EXPECT_NE(without.find(" processors"), std::string::npos);
  plugins["device.some"].facts["needs"]["named_by"].data = (folder / "*.txt").string();
  plugins["device.some"].facts["needs"]["hidden_by"].data = std::string("MORTISE_TEST_DEVICES");
  EXPECT_EQ(machine_of(plugins), without) << "it has none";
  write("0.txt", "Model: \t\t Some GPU \nIRQ: 7\n");
  write("1.txt", "Another\n");
  EXPECT_EQ(machine_of(plugins), without + ", Some GPU, Another");
  setenv("MORTISE_TEST_DEVICES", "1", 1);
  EXPECT_EQ(machine_of(plugins), without + ", Some GPU, Another, MORTISE_TEST_DEVICES=1");
  unsetenv("MORTISE_TEST_DEVICES");
}

TEST_F(Identity, OfABuildIsThatOfItsBytes) {
  plugins["optimizer.some"].library = (folder / "some.so").string();
  const std::string missing = build_of(plugins, "");
  write("some.so", "one");
  const std::string one = build_of(plugins, "");
  EXPECT_NE(one, missing);
  EXPECT_EQ(one, build_of(plugins, ""));
  write("some.so", "two");
  EXPECT_NE(build_of(plugins, ""), one);
  write("some.so", "one");
  EXPECT_EQ(build_of(plugins, ""), one);
  write("program", "its own");
  EXPECT_NE(build_of(plugins, (folder / "program").string()), one);
}

}  // namespace
}  // namespace mortise::cli
