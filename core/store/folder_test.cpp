// Which checkpoint to go on from, and which ones belong to a past that was given up.
#include "core/store/folder.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace mortise {
namespace {

using Steps = std::vector<int64_t>;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    run = fs::path(testing::TempDir()) / ("mortise_folder." + std::to_string(getpid()));
    fs::remove_all(run);
    fs::create_directories(run);
    root = (run / "checkpoints").string();
  }
  void TearDown() override { fs::remove_all(run); }

  static Snapshot snapshot(int64_t step) {
    Snapshot s;
    s.texts["state.json"] = "of step " + std::to_string(step);
    return s;
  }
  static void save(CheckpointFolder& folder, int64_t step) { folder.save(snapshot(step), {}, step, {}); }
  void save(const Steps& steps) {
    CheckpointFolder folder(root);
    for (const int64_t step : steps) save(folder, step);
  }
  static std::optional<Verified> resume(CheckpointFolder& folder, const std::string& from,
                                        const CheckpointFolder::Told& told) {
    const auto chosen = folder.choose(from, told);
    folder.go_on_from(chosen.value_or(Verified{}));
    return chosen;
  }
  void resume(const std::string& from) {
    CheckpointFolder folder(root);
    resume(folder, from, passed_over());
  }
  void damage(int64_t step) { std::ofstream(root + "/step-" + std::to_string(step) + "/state.json") << "nonsense"; }
  static Steps in(const std::string& where) {
    Steps steps;
    for (const Found& found : checkpoints_in(where)) steps.push_back(found.step);
    std::ranges::reverse(steps);
    return steps;
  }
  Steps abandoned() const { return in(root + "/abandoned"); }
  CheckpointFolder::Told passed_over() {
    return [this](const Diagnostic& d) { told.push_back(d.message); };
  }
  std::string link(const char* name) const {
    std::error_code error;
    return fs::read_symlink(root + "/" + name, error).string();
  }
  std::string find(const std::string& which) {
    try {
      return "step " + std::to_string(CheckpointFolder(root).find(which, "--checkpoint", passed_over()).step);
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.exit, kExitData);
      std::string text = f.diagnostic.code + ": " + f.diagnostic.message;
      for (const std::string& fix : f.diagnostic.fixes) text += " | " + fix;
      return text;
    }
  }

  fs::path run;
  std::string root;
  std::vector<std::string> told;
};

TEST_F(Folder, SavesWhatASnapshotHolds) {
  const std::vector<float> weights = {1, 2};
  StoredEntry e;
  e.name = "w";
  e.data = weights.data();
  e.bytes = 8;
  Snapshot s = snapshot(7);
  s.tensors["model/model"] = {e};
  s.tensors["optimizer/rank-0"] = {};
  const TensorFormat format = {".bin", [](const std::vector<StoredEntry>& entries, const Sink& sink) {
                                 for (const StoredEntry& each : entries) sink(each.data, each.bytes);
                               }};
  CheckpointFolder folder(root);
  const CheckpointManifest m = folder.save(s, format, 7, {{"optimizer.x", {"1.0", std::string(64, 'a')}}});
  EXPECT_EQ(m.files.size(), 3u);
  EXPECT_EQ(m.files.at("model/model.bin").bytes, 8u);
  EXPECT_EQ(m.plugins.at("optimizer.x").version, "1.0");
  EXPECT_EQ(verify_checkpoint({root + "/step-7", 7}).manifest.sha256, m.sha256);
  EXPECT_EQ(link("latest"), "step-7");
}

// keep = 1, a damaged step 29, saves at 21, 24 and 27: each was announced, and each was gone.
TEST_F(Folder, HoldsWhatWasAnnouncedAfterADamagedOne) {
  save({15, 18, 29});
  damage(29);
  CheckpointFolder folder(root);
  ASSERT_EQ(resume(folder, "", passed_over())->step, 18);
  EXPECT_EQ(told, (std::vector<std::string>{"step 29 is not what was saved"}));
  EXPECT_EQ(abandoned(), (Steps{29}));
  for (const int64_t step : {21, 24, 27}) {
    folder.confirm(step - 1);
    save(folder, step);
    folder.retire({.keep = 1}, -1);
    EXPECT_TRUE(std::ranges::count(in(root), step)) << step;
    EXPECT_EQ(link("latest"), "step-" + std::to_string(step));
  }
  EXPECT_EQ(in(root), (Steps{18, 24, 27}));  // resumed from, confirmed, saved
  folder.confirm(27);
  folder.retire({.keep = 1}, -1);
  EXPECT_EQ(in(root), (Steps{18, 27}));
}

// Even with a damaged one that appears later: somebody copied it back, or another process made it.
TEST_F(Folder, HoldsWhatWasAnnouncedBesideANewerOne) {
  save({29});
  CheckpointFolder folder(root);
  for (const int64_t step : {21, 24}) {
    folder.confirm(step - 1);
    save(folder, step);
    folder.retire({.keep = 1}, -1);
  }
  EXPECT_EQ(in(root), (Steps{21, 24, 29}));
}

TEST_F(Folder, SetsAsideEveryNewerOne) {
  save({3, 6, 9, 12, 15});
  damage(12);
  CheckpointFolder folder(root);
  EXPECT_EQ(resume(folder, "6", passed_over())->step, 6);
  EXPECT_EQ(in(root), (Steps{3, 6}));
  EXPECT_EQ(abandoned(), (Steps{9, 12, 15}));
  EXPECT_EQ(link("latest"), "step-6");
  EXPECT_TRUE(told.empty());
}

TEST_F(Folder, ReplacesWhatWasSetAsideBefore) {
  save({3, 6});
  resume("3");
  const std::string aside = root + "/abandoned/step-6/state.json";
  std::ofstream(aside) << "of the first time";
  save({6});
  resume("3");
  std::string text;
  std::getline(std::ifstream(aside), text);
  EXPECT_EQ(text, "of step 6");
  EXPECT_EQ(std::distance(fs::directory_iterator(root + "/abandoned"), {}), 1);
}

TEST_F(Folder, RemovesLeftoversOnEveryResume) {
  fs::create_directories(root + "/.tmp-step-4/model");
  CheckpointFolder folder(root);
  EXPECT_EQ(resume(folder, "", passed_over()), std::nullopt);
  EXPECT_TRUE(fs::is_empty(root));
  save({3, 6});
  fs::create_directories(root + "/.tmp-old-step-1");
  fs::create_directories(root + "/abandoned/.tmp-old-step-6");
  resume(folder, "3", passed_over());
  EXPECT_EQ(in(root), (Steps{3}));
  EXPECT_FALSE(fs::exists(root + "/.tmp-old-step-1"));
  EXPECT_FALSE(fs::exists(root + "/abandoned/.tmp-old-step-6"));
}

TEST_F(Folder, MovesNothingWhereThereIsNothingToResumeFrom) {
  save({3, 6});
  damage(3);
  damage(6);
  CheckpointFolder folder(root);
  EXPECT_THROW(resume(folder, "", passed_over()), Failure);
  EXPECT_THROW(resume(folder, "3", passed_over()), Failure);
  EXPECT_THROW(resume(folder, "4", passed_over()), Failure);
  EXPECT_EQ(in(root), (Steps{3, 6}));
}

// What lies behind the link belongs to somebody else.
TEST_F(Folder, DoesNotSetAsideThroughALink) {
  save({3, 6});
  fs::create_directories(run / "elsewhere/step-6");
  fs::create_directory_symlink(run / "elsewhere", root + "/abandoned");
  EXPECT_THROW(resume("3"), Failure);
  EXPECT_TRUE(fs::exists(run / "elsewhere/step-6"));
  EXPECT_EQ(in(root), (Steps{3, 6}));
}

// A later checkpoint of that step is another one.
TEST_F(Folder, ForgetsABestThatIsSetAside) {
  save({3, 6, 9});
  point_at(root, "best", 9);
  CheckpointFolder folder(root);
  resume(folder, "6", passed_over());
  EXPECT_EQ(link("best"), "");
  save(folder, 9);
  EXPECT_EQ(find("best"), "no_checkpoint: " + run.string() + " has no best checkpoint | --checkpoint latest");
  point_at(root, "best", 3);
  resume(folder, "6", passed_over());
  EXPECT_EQ(link("best"), "step-3");
}

// A process that was killed between the save and the link left the old one.
// It knows the best of the run that it goes on with, and of each save.
TEST_F(Folder, RemovesTheBestBeforeWhenTheNewOneIsConfirmed) {
  save({4, 6, 8});
  CheckpointFolder folder(root, {.resumed = 6, .confirmed = 5, .best = 4});
  save(folder, 8);
  folder.retire({.keep = 1}, 8);
  EXPECT_EQ(in(root), (Steps{4, 6, 8}));
  folder.confirm(8);
  folder.retire({.keep = 1}, 8);
  EXPECT_EQ(in(root), (Steps{6, 8}));  // 6: what it went on from
}

TEST_F(Folder, LinksTheBestWhenItRetires) {
  CheckpointFolder folder(root);
  for (const int64_t step : {3, 6, 9}) save(folder, step);
  folder.confirm(8);
  folder.retire({.keep = 1}, 3);
  EXPECT_EQ(link("best"), "step-3");
  EXPECT_EQ(in(root), (Steps{3, 6, 9}));  // 6 is the newest that is confirmed
  folder.confirm(9);
  folder.retire({.keep = 1}, 9);
  EXPECT_EQ(link("best"), "step-9");
  EXPECT_EQ(in(root), (Steps{9}));
}

TEST_F(Folder, FindsWhatAPersonCallsIt) {
  EXPECT_EQ(find(""), "no_checkpoint: " + run.string() +
                          " has no checkpoint yet | wait for the first one; [checkpoint] every says when");
  save({3, 6, 9});
  for (const char* which : {"6", "step-6", "step-6/", "checkpoints/step-6"}) EXPECT_EQ(find(which), "step 6") << which;
  EXPECT_EQ(find(root + "/step-6"), "step 6");
  EXPECT_EQ(find(root + "/step-6/"), "step 6");
  EXPECT_EQ(find(root + "/../checkpoints/step-6"), "step 6");
  EXPECT_EQ(find("latest"), "step 9");
  EXPECT_EQ(find(""), "step 9");
  point_at(root, "best", 3);
  EXPECT_EQ(find("best"), "step 3");
  EXPECT_EQ(find("checkpoints/best"), "step 3");
  EXPECT_EQ(find(""), "step 3");
}

// As when a training beside the reader retires what it has just found.
TEST_F(Folder, UsesWhatAPersonWouldMeanNowWhenOneWasTakenAway) {
  save({3});
  std::vector<int64_t> used;
  const CheckpointFolder folder(root);
  folder.with("", "--checkpoint", {}, [&](const Verified& found) {
    used.push_back(found.step);
    if (found.step == 6) return;
    save({6});
    throw Failure(trouble(kExitData, "not_read", "it is gone"));
  });
  EXPECT_EQ(used, (Steps{3, 6}));
  const auto fails = [](const Verified&) { throw Failure(trouble(kExitData, "not_read", "it is gone")); };
  EXPECT_THROW(folder.with("", "--checkpoint", {}, fails), Failure);  // nothing newer came
}

TEST_F(Folder, RetiresNoneThatSomebodyReads) {
  save({3});
  CheckpointFolder training(root);
  CheckpointFolder(root).with("3", "--checkpoint", {}, [&](const Verified&) {
    for (const int64_t step : {6, 9}) save(training, step);
    training.confirm(9);
    training.retire({.keep = 1}, -1);
    EXPECT_EQ(in(root), (Steps{3, 9}));
  });
  training.retire({.keep = 1}, -1);
  EXPECT_EQ(in(root), (Steps{9}));
}

TEST_F(Folder, FindsNothingElse) {
  save({3, 6, 9});
  const std::string only = ", only of 9, 6 or 3 | --checkpoint 9";
  for (const char* which : {"5", "06", "-6", "6.0", "99999999999999999999", "1e1", "newest", "../secret/step-6",
                            "other/checkpoints/step-6"})
    EXPECT_EQ(find(which), "no_checkpoint: " + run.string() + " has no checkpoint of step " + which + only);
  damage(6);
  EXPECT_EQ(find("6").substr(0, 20), "checkpoint_damaged: ");
  damage(9);
  EXPECT_EQ(find("latest"), "step 3");
  damage(3);
  EXPECT_EQ(find("latest"), "no_checkpoint: no checkpoint of " + run.string() +
                                " is what was saved | mortise checkpoint verify " + run.string());
}

// A link `best` that leads nowhere, or out of the folder, is none.
TEST_F(Folder, BelievesNoLinkThatLeadsElsewhere) {
  save({3, 6});
  for (const char* target : {"step-9", "../elsewhere/step-3", "/", "step-03", "latest"}) {
    fs::remove(root + "/best");
    fs::create_symlink(target, root + "/best");
    EXPECT_EQ(find(""), "step 6") << target;
    EXPECT_NE(find("best"), "step 3") << target;
  }
}

}  // namespace
}  // namespace mortise
