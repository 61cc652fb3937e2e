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
    for (const char* name : {"plan.txt", "env.json", "log.txt"}) never.write(name, "x");
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

// ---- status.json, and what stands beside a run ----

TEST_F(Directory, SaysHowItStands) {
  const Manifest m = read("[run]\ndir = \"mine\"\ntags = [\"a\", \"b\"]\nnotes = \"why\"\n");
  RunDirectory d(m, plan, request);
  d.begin(0, 10);
  const std::string end = ",\"resumable\":false,\"tags\":[\"a\",\"b\"],\"notes\":\"why\"}\n";
  EXPECT_NE(text("mine/status.json").find(",\"exit\":null" + end), std::string::npos) << text("mine/status.json");
  d.end(kExitPlugin, 4);
  EXPECT_NE(text("mine/status.json").find("{\"state\":\"failed\",\"step\":4,\"of\":10,"), std::string::npos);
  EXPECT_NE(text("mine/status.json").find(",\"exit\":71" + end), std::string::npos) << text("mine/status.json");
  EXPECT_EQ(status_of("mine")->step, 4);
  EXPECT_EQ(status_of("mine")->of, 10);
}

// It can be gone on with if there is something to go on from, and something left to do.
TEST_F(Directory, IsResumableWithACheckpointUntilItIsFinished) {
  RunDirectory d(read("[run]\ndir = \"mine\"\n"), plan, request);
  d.begin(0, 10);
  EXPECT_FALSE(status_of("mine")->resumable);
  file("mine/checkpoints/step-4/manifest.json", "{}");
  d.end(kExitInterrupted, 4);
  EXPECT_TRUE(status_of("mine")->resumable);
  d.end(kExitOk, 10);
  EXPECT_FALSE(status_of("mine")->resumable);
  file("mine/status.json", R"({"state": "stopped", "step": 4, "of": 10})");
  EXPECT_FALSE(status_of("mine")->resumable) << "of a version that did not say";
}

TEST_F(Directory, IsToldOfAtMostEveryTwoSeconds) {
  RunDirectory d(read("[run]\ndir = \"mine\"\n"), plan, request);
  d.begin(0, 10);
  d.progress(4);
  EXPECT_EQ(status_of("mine")->step, 0);
}

TEST_F(Directory, IsTheLatestOfItsNeighboursUnlessThatIsAFolder) {
  for (const char* name : {"one", "two"})
    RunDirectory(read("[run]\nname = \"" + std::string(name) + "\"\n"), plan, request).begin(0, 1);
  EXPECT_EQ(fs::read_symlink("runs/latest"), "two");
  fs::remove("runs/latest");
  file("runs/latest/keep.txt", "x");
  RunDirectory(read("[run]\nname = \"three\"\n"), plan, request).begin(0, 1);
  EXPECT_EQ(text("runs/latest/keep.txt"), "x");
}

TEST_F(Directory, LiesWhereTheEnvironmentSays) {
  const Manifest m = read("[run]\nname = \"one\"\n");
  ::setenv("MORTISE_RUNS", "elsewhere", 1);
  EXPECT_EQ(directory_of(m), "elsewhere/one");
  ::setenv("MORTISE_RUNS", "", 1);
  EXPECT_EQ(directory_of(m), "runs/one");
  ::unsetenv("MORTISE_RUNS");
}

TEST_F(Directory, OfTheNextNameIsTheFirstThatIsNotThere) {
  EXPECT_EQ(next_name("one"), "one-2");
  file("one-2", "x");
  fs::create_symlink("nowhere", "one-3");
  EXPECT_EQ(next_name("one"), "one-4");
}

TEST_F(Directory, KeepsEveryCommand) {
  RunDirectory d(read("[run]\ndir = \"mine\"\n"), plan, request);
  d.begin(0, 1);
  d.add_command("mortise train");
  d.add_command("mortise resume");
  EXPECT_EQ(text("mine/sources/command.txt"), "mortise train\nmortise resume\n");
}

// Gone on with, its manifest and where its values are from come back as they were read.
TEST_F(Directory, GetsItsRecordAgainWhenItWasEmptied) {
  const Manifest m = read("[run]\ndir = \"mine\"\n");
  RunDirectory(m, plan, request).begin(0, 1);
  const std::string run = text("mine/run.toml"), origins = text("mine/sources/origins.json");
  EXPECT_NE(origins, "{}\n");
  const RunDirectory again("mine", m);
  for (const auto& each : fs::directory_iterator("mine")) fs::remove_all(each);
  testing::internal::CaptureStderr();
  again.must_be_here();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("run_emptied"), std::string::npos);
  EXPECT_EQ(text("mine/run.toml"), run);
  EXPECT_EQ(text("mine/sources/origins.json"), origins);
}

TEST_F(Directory, ThatIsMovedOrRemovedIsWrittenToNoMore) {
  for (const bool moved : {true, false}) {
    RunDirectory d(read("[run]\ndir = \"mine\"\n"), plan, request);
    d.begin(0, 10);
    if (moved) fs::rename("mine", "theirs");
    else fs::remove_all("mine");
    fs::create_directory("mine");
    d.end(kExitOk, 10);
    EXPECT_TRUE(fs::is_empty("mine"));
    try {
      d.must_be_here();
      ADD_FAILURE() << "not refused";
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.code, "dir_moved");
      EXPECT_EQ(f.diagnostic.fixes.at(0),
                moved ? "mortise resume " + (folder / "theirs").string() : "train it again: its checkpoints are gone");
    }
    fs::remove_all("mine");
  }
}

// A directory may come from a stranger: what a run would write to leads nowhere else, and has an end.
TEST_F(Directory, RefusesLinksAndPipesWhereItWillWrite) {
  const Manifest m = read("[run]\nname = \"one\"\n");
  {
    RunDirectory d(m, plan, request);
    d.begin(0, 1);
  }
  file("precious.txt", "mine");
  for (const char* name : {"log.txt", "metrics.jsonl", "status.json", "plan.txt", "env.json", "sources/command.txt",
                           "sources/origins.json"})
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
