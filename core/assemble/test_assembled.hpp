// Runs of the plugins of this build, assembled; for the tests of this room.
#pragma once
#include <unistd.h>

#include <filesystem>

#include "core/assemble/allocated.hpp"
#include "core/declare/test_planned.hpp"

namespace mortise::testing {

struct Assembled {
  PlannedRun planned;
  Runnable r;
  explicit Assembled(const std::string& more = "", const std::vector<std::string>& set = {},
                     const std::vector<std::string>& folders = {})
      : planned(more, set, {}, folders),
        r(make_runnable(allocate(declare(planned.request(), std::make_unique<Host>(planned.plan.points, 1)), true))) {}
  Host& host() { return r.host(); }
  const mortise_clock& clock() { return host().services.clock; }
  StepReport step() {
    r.step->run();
    return r.step->take_report(true).value();
  }
};

class InFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::path(::testing::TempDir()) / ("mortise_assemble." + std::to_string(getpid()));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
};

}  // namespace mortise::testing
