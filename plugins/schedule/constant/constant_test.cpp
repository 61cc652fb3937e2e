#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

TEST(ConstantSchedule, StaysAtThePeak) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const double progress : {-0.5, 0.0, 0.3, 1.0, 2.0}) {
    double factor = 0;
    EXPECT_EQ(plugin.object<mortise_schedule>("schedule").factor(plugin.self(), progress, &factor), MORTISE_OK);
    EXPECT_EQ(factor, 1.0);
  }
}
}  // namespace
