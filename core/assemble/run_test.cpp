// A run from the outside: trained, stopped, gone on with, evaluated.
#include "core/assemble/run.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "core/abi/lost_device.hpp"
#include "core/assemble/test_assembled.hpp"
#include "core/store/folder.hpp"

namespace mortise::testing {
namespace {

struct Runs : InFolder {
  static constexpr const char* kMore = "[checkpoint]\nevery = 2\nkeep = 9\n";
  RunRequest request(const PlannedRun& planned, const std::string& dir) {
    RunRequest r;
    r.manifest = &planned.manifest;
    r.plan = &planned.plan;
    r.dir = (folder / dir).string();
    r.resume_command = "mortise resume it";
    std::filesystem::create_directories(r.dir);
    return r;
  }
  std::vector<Found> checkpoints(const std::string& dir) {
    return CheckpointFolder((folder / dir / "checkpoints").string()).all();
  }
  std::string hash(const Found& found) { return verify_checkpoint(found).manifest.sha256; }
  static Interrupt nobody(std::chrono::steady_clock::time_point) { return Interrupt::kNone; }
};

TEST_F(Runs, GoOnWhereTheyWereStopped) {
  PlannedRun planned(kMore);
  mortise::Run whole(request(planned, "whole"));
  EXPECT_EQ(whole.step(), 0);
  EXPECT_EQ(whole.summary().steps, 6);
  EXPECT_EQ(whole.train(nobody), kExitOk);
  EXPECT_EQ(whole.step(), 6);
  int polls = 0;
  {
    mortise::Run part(request(planned, "part"));
    EXPECT_EQ(part.train([&](auto) { return ++polls == 4 ? Interrupt::kTerminate : Interrupt::kNone; }),
              kExitResumable);
    EXPECT_EQ(part.step(), 3);
  }
  RunRequest again = request(planned, "part");
  again.checkpoint = checkpoints("part").at(0);
  EXPECT_EQ(again.checkpoint.step, 3);
  mortise::Run part(again);
  EXPECT_EQ(part.step(), 3);
  EXPECT_EQ(part.train(nobody), kExitOk);
  EXPECT_EQ(hash(checkpoints("part").at(0)), hash(checkpoints("whole").at(0)));
}

TEST_F(Runs, ForUseMeasureWhatWasSaved) {
  PlannedRun planned(kMore);
  mortise::Run trained(request(planned, "it"));
  trained.train(nobody);
  const Measured was = trained.evaluate();
  EXPECT_EQ(was.samples, 5);
  RunRequest use = request(planned, "it");
  use.purpose = Purpose::kUse;
  use.checkpoint = checkpoints("it").at(0);
  mortise::Run run(use);
  const Measured is = run.evaluate();
  EXPECT_EQ(is.values, was.values);
  EXPECT_EQ(run.step(), 6);
  use.checkpoint = {};
  EXPECT_NE(mortise::Run(use).evaluate().values, was.values) << "from the seed";
}

TEST_F(Runs, WithoutADirectorySaveNothing) {
  PlannedRun planned(kMore);
  RunRequest r = request(planned, "none");
  r.dir = "";
  mortise::Run run(r);
  EXPECT_EQ(run.train(nobody), kExitOk);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "none"));
  EXPECT_FALSE(run.can_sample());
}

// Memory of a device that is lost cannot be given back: who tries is ended by CUDA.
TEST_F(Runs, DestroyNothingThatLiesOnADeviceThatIsLost) {
  PlannedRun planned(kMore);
  const auto is_destroyed = [&](const std::string& says) {
    auto owned = std::make_shared<int>();
    const std::weak_ptr<int> seen = owned;
    RunRequest r = request(planned, "it");
    r.before_save = [owned = std::move(owned)] {};
    auto run = std::make_unique<mortise::Run>(std::move(r));
    const auto before = std::exchange(lost_device, [&] { return says; });
    run.reset();
    lost_device = before;
    return seen.expired();
  };
  EXPECT_TRUE(is_destroyed(""));
  EXPECT_FALSE(is_destroyed("the GPU says: it is gone"));
}

}  // namespace
}  // namespace mortise::testing
