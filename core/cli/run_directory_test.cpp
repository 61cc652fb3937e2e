#include "core/cli/run_directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/cli/common.hpp"
#include "core/manifest/testing.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

class Directory : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    ::unsetenv("MORTISE_RUNS");
    file("shipped/default.toml", "[device.cpu]\n");
    request.default_file = (folder / "shipped/default.toml").string();
  }
  std::string text(const std::string& path) {
    std::ifstream in(folder / path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Plan plan;
};

TEST_F(Directory, StaysOnlyOnceARunHasBegun) {
  const Manifest m = read("[run]\nname = \"one\"\n");
  {
    const RunDirectory never(m, plan, request);
    EXPECT_TRUE(fs::exists("runs/one/run.toml"));
  }
  EXPECT_FALSE(fs::exists("runs/one"));
  {
    RunDirectory d(m, plan, request);
    EXPECT_EQ(d.path(), "runs/one");
    d.begin(0, 10);
    EXPECT_NE(text("runs/one/status.json").find("{\"state\":\"running\",\"step\":0,\"of\":10,"), std::string::npos);
    d.progress(4);
    d.end(kExitInterrupted, 5);
  }
  EXPECT_NE(text("runs/one/status.json").find("{\"state\":\"stopped\",\"step\":5,\"of\":10,"), std::string::npos);
  EXPECT_EQ(fs::read_symlink("runs/latest"), "one");
  EXPECT_EQ(RunDirectory(m, plan, request).path(), "runs/one-2");
}

// It could not be resumed, and would say so only then.
TEST_F(Directory, IsNotBegunWithAManifestThatCouldNotBeReadBack) {
  constexpr size_t kAlmost = kMostManifestBytes - 10;  // what is resolved says more than what is written
  const std::string before = "[run]\nname = \"one\"\nnotes = \"", after = "\"\n";
  const Manifest m = read(before + std::string(kAlmost - before.size() - after.size(), 'x') + after);
  ASSERT_EQ(errors, "");
  try {
    const RunDirectory never(m, plan, request);
    FAIL();
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "too_large");
  }
  EXPECT_FALSE(fs::exists("runs/one/run.toml"));
}

TEST_F(Directory, LeavesAlonePeoplesFilesInAFolderThatTheyNamed) {
  file("mine/run.toml", "[run]\n");
  file("mine/sources/keep.txt", "x");
  file("runs/run/checkpoints/keep.txt", "x");
  for (const std::string dir : {"dir = \"mine\"", "dir = \"/\"", ""}) {
    const Manifest m = read("[run]\n" + dir + "\n");
    for (const bool again : {true, false}) {
      if (dir.empty() && !again) continue;  // the next free name is taken
      try {
        const RunDirectory taken(m, plan, request, again);
        ADD_FAILURE() << dir << " was taken";
      } catch (const Failure& f) {
        EXPECT_EQ(f.diagnostic.code, "dir_not_empty") << f.diagnostic.message;
        EXPECT_EQ(f.diagnostic.exit, kExitUsage);
      }
    }
    if (dir == "dir = \"mine\"") {
      EXPECT_THROW(RunDirectory("mine", m), Failure) << "to go on in it";
    }
  }
  EXPECT_EQ(text("mine/run.toml"), "[run]\n");
  EXPECT_EQ(text("mine/sources/keep.txt"), "x");
  EXPECT_EQ(text("runs/run/checkpoints/keep.txt"), "x");
}

// What a start that was cut short leaves is taken; what was there before this one stays.
TEST_F(Directory, GivesBackAnEmptyFolderAsItWas) {
  fs::create_directories("theirs");
  fs::create_directory("runs");
  fs::create_directory_symlink(folder / "theirs", "runs/run");
  const Manifest m = read("");
  {
    const RunDirectory never(m, plan, request, true);
    EXPECT_TRUE(fs::exists("theirs/run.toml"));
  }
  EXPECT_TRUE(fs::is_symlink("runs/run"));
  EXPECT_TRUE(fs::is_empty("theirs"));
  file("theirs/run.toml.tmp-17", "[run]\n");
  RunDirectory(m, plan, request, true).begin(0, 1);
  EXPECT_TRUE(fs::exists("theirs/status.json"));
}

// Names of write_file() and no others, files and nothing else.
TEST_F(Directory, IsClearedOfWhatAKilledProcessHadBegun) {
  const Manifest m = read("[run]\ndir = \"mine\"\n");
  const std::string random = ".tmp-0123456789abcdef";
  file("mine/run.toml" + random, "[run]\n");
  RunDirectory(m, plan, request).begin(0, 1);
  EXPECT_FALSE(fs::exists("mine/run.toml" + random));
  const std::vector<std::string> stay = {"my.tmp-notes", "a.tmp-0123456789ABCDEF", "a.tmp-0123456789abcde",
                                         random,         "metrics.jsonl",          "x/status.json" + random};
  for (const std::string& name : {"status.json" + random, "sources/origins.json" + random}) file("mine/" + name, "{");
  for (const std::string& name : stay) file("mine/" + name, "x");
  fs::create_directory("mine/folder" + random);
  fs::create_symlink("metrics.jsonl", "mine/link" + random);
  {
    const RunDirectory again("mine", m);
  }
  EXPECT_FALSE(fs::exists("mine/status.json" + random));
  EXPECT_FALSE(fs::exists("mine/sources/origins.json" + random));
  for (const std::string& name : stay) EXPECT_TRUE(fs::exists("mine/" + name)) << name;
  EXPECT_TRUE(fs::exists("mine/folder" + random));
  EXPECT_TRUE(fs::is_symlink("mine/link" + random));
}

TEST_F(Directory, IsNoFileAndNoLinkToNowhere) {
  fs::create_directory("runs");
  const Manifest m = read("");
  for (const bool link : {true, false}) {
    if (link) fs::create_symlink("nowhere", "runs/run");
    else file("runs/run", "x");
    try {
      const RunDirectory taken(m, plan, request, true);
      ADD_FAILURE() << "taken";
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.code, "dir_not_made") << f.diagnostic.message;
    }
    EXPECT_EQ(fs::is_symlink("runs/run"), link);
    fs::remove("runs/run");
  }
}

TEST_F(Directory, IsNotTakenTwice) {
  const Manifest m = read("[run]\ndir = \"mine\"\n");
  {
    RunDirectory d(m, plan, request);
    d.begin(0, 3);
    d.end(kExitOk, 0);
  }
  try {
    const RunDirectory again(m, plan, request);
    FAIL() << "taken twice";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "dir_exists");
    EXPECT_EQ(f.diagnostic.exit, kExitExists);
    EXPECT_EQ(f.diagnostic.message, (folder / "mine").string() + " already holds a run (finished, step 0)");
  }
  EXPECT_NE(text("mine/status.json").find("finished"), std::string::npos);
}

TEST_F(Directory, KeepsEachSourceUnderANameOfItsOwn) {
  file("a/base.toml", "[run]\nseed = 1\n");
  file("b/base.toml", "include = [\"../a/base.toml\"]\n");
  file("shipped/small.toml", "[run]\nseed = 2\n");
  const Manifest m = read("include = [\"mortise:small\", \"b/base.toml\"]\n");
  ASSERT_EQ(errors, "");
  RunDirectory d(m, plan, request);
  d.begin(0, 1);
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator("runs/run/sources")) names.push_back(each.path().filename().string());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"base-2.toml", "base.toml", "default.toml", "origins.json", "run.toml",
                                             "small.toml"}));
  EXPECT_EQ(text("runs/run/sources/default.toml"), "[device.cpu]\n");
  EXPECT_EQ(text("runs/run/sources/run.toml"), text("run.toml"));
}

// A directory may come from a stranger: what a run would write to leads nowhere else, and has an end.
TEST_F(Directory, RefusesLinksAndPipesWhereItWillWrite) {
  const Manifest m = read("[run]\nname = \"one\"\n");
  {
    RunDirectory d(m, plan, request);
    d.begin(0, 1);
  }
  file("precious.txt", "mine");
  for (const char* name : {"log.txt", "metrics.jsonl", "status.json", "sources/command.txt"})
    for (const bool link : {true, false}) {
      const fs::path there = fs::path("runs/one") / name;
      fs::remove(there);
      if (link) fs::create_symlink(folder / "precious.txt", there);
      else ASSERT_EQ(::mkfifo(there.c_str(), 0600), 0);
      try {
        const RunDirectory again("runs/one", m);
        ADD_FAILURE() << there << " was taken";
      } catch (const Failure& f) {
        EXPECT_EQ(f.diagnostic.code, "not_a_file");
        EXPECT_EQ(f.diagnostic.exit, kExitData);
        EXPECT_TRUE(f.diagnostic.message.starts_with(there.string() + " is ")) << f.diagnostic.message;
      }
      EXPECT_FALSE(status_of("runs/one").has_value() && std::string(name) == "status.json");
      fs::remove(there);
    }
  for (const char* name : {"checkpoints", "checkpoints/abandoned"}) {
    fs::create_directory(folder / "other");
    fs::create_directory_symlink(folder / "other", fs::path("runs/one") / name);
    EXPECT_THROW(RunDirectory("runs/one", m), Failure) << name;
    fs::remove(fs::path("runs/one") / name);
    fs::create_directory(fs::path("runs/one") / name);
  }
  const RunDirectory sound("runs/one", m);
}

}  // namespace
}  // namespace mortise::cli
