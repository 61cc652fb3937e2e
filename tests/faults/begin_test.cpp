// A run that begins, and a machine that stops right then: the run directory and its run.toml are there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "core/cli/run_directory.hpp"
#include "core/manifest/testing.hpp"
#include "tests/faults/crash_model.hpp"
#include "tests/faults/recorder.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

using faults::Crash;
using faults::Recorder;
using faults::Trace;

class Begin : public ManifestTest {
 protected:
  // Without the sources' copies, which the recorder does not see.
  Trace begin(const std::string& run) {
    ::unsetenv("MORTISE_RUNS");
    file("shipped/default.toml", "[device.cpu]\n");
    request.default_file = (folder / "shipped/default.toml").string();
    const Manifest m = read("[run]\n" + run);
    EXPECT_EQ(errors, "");
    fs::remove_all(folder / "shipped");
    fs::remove(folder / "run.toml");
    Recorder recorder(fs::canonical(folder).string());
    RunDirectory(m, Plan{}, request).begin(0, 1);
    return recorder.finish();
  }
};

TEST_F(Begin, KeepsTheNameOfTheRunDirectoryAndOfThoseAboveIt) {
  const std::vector<std::pair<std::string, std::string>> runs = {
      {"name = \"one\"\n", "runs/one"}, {"name = \"one\"\n", "runs/one-2"}, {"dir = \"a/b/c/\"\n", "a/b/c"}};
  for (const auto& [run, name] : runs) {
    const Trace trace = begin(run);
    const Crash crash(trace, trace.events.size());
    std::mt19937_64 random(1);
    for (int i = 0; i < 100; ++i) {
      const faults::Tree tree = crash.tree(crash.any_way(random));
      const auto manifest = tree.find(name + "/run.toml");
      ASSERT_NE(manifest, tree.end()) << name << ", way " << i;
      EXPECT_TRUE(manifest->second.content.starts_with(kResolvedMark)) << name;
    }
  }
}

}  // namespace
}  // namespace mortise::cli
