#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

double factor_at(double progress, double final) {
  FakeHost host;
  host.set("final", final);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  double factor = -1;
  EXPECT_EQ(plugin.object<mortise_schedule>("schedule").factor(plugin.self(), progress, &factor), MORTISE_OK);
  return factor;
}

TEST(CosineSchedule, GoesFromThePeakToItsFinalShareExactly) {
  EXPECT_EQ(factor_at(0.0, 0.1), 1.0);
  EXPECT_EQ(factor_at(1.0, 0.1), 0.1);
  EXPECT_EQ(factor_at(1.0, 0.0), 0.0);
}

TEST(CosineSchedule, IsSlowAtBothEndsAndHalfwayInTheMiddle) {
  EXPECT_DOUBLE_EQ(factor_at(0.5, 0.2), 0.6);
  EXPECT_NEAR(factor_at(0.25, 0.0), 0.85355339059327, 1e-14);  // (1 + cos(pi/4)) / 2
  EXPECT_GT(factor_at(0.1, 0.0), 0.9);
  EXPECT_LT(factor_at(0.9, 0.0), 0.1);
}

TEST(CosineSchedule, WithAFinalShareOfOneIsConstant) {
  for (const double progress : {0.0, 0.2, 0.7, 1.0}) EXPECT_DOUBLE_EQ(factor_at(progress, 1.0), 1.0);
}

TEST(CosineSchedule, StaysWithinItsEndsOutsideOfTheRun) {
  EXPECT_EQ(factor_at(-1.0, 0.1), 1.0);
  EXPECT_EQ(factor_at(5.0, 0.1), 0.1);
}

TEST(CosineSchedule, RefusesAHostWithoutConfiguration) {
  FakeHost host;
  host.withhold("mortise.config/0");
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.error(), "this host has no mortise.config/0");
}
}  // namespace
