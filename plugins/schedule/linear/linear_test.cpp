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

TEST(LinearSchedule, GoesFromThePeakToItsFinalShareExactly) {
  EXPECT_EQ(factor_at(0.0, 0.1), 1.0);
  EXPECT_EQ(factor_at(1.0, 0.1), 0.1);
  EXPECT_EQ(factor_at(1.0, 0.0), 0.0);
}

TEST(LinearSchedule, FallsEvenly) {
  EXPECT_DOUBLE_EQ(factor_at(0.25, 0.0), 0.75);
  EXPECT_DOUBLE_EQ(factor_at(0.5, 0.2), 0.6);
}

TEST(LinearSchedule, WithAFinalShareOfOneIsConstant) {
  for (const double progress : {0.0, 0.2, 0.7, 1.0}) EXPECT_DOUBLE_EQ(factor_at(progress, 1.0), 1.0);
}

TEST(LinearSchedule, StaysWithinItsEndsOutsideOfTheRun) {
  EXPECT_EQ(factor_at(-1.0, 0.1), 1.0);
  EXPECT_EQ(factor_at(5.0, 0.1), 0.1);
}

TEST(LinearSchedule, RefusesAHostWithoutConfiguration) {
  FakeHost host;
  host.withhold("mortise.config/0");
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.error(), "this host has no mortise.config/0");
}
}  // namespace
