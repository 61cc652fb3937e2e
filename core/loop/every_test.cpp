#include "core/loop/every.hpp"

#include <gtest/gtest.h>

namespace mortise {
namespace {

constexpr Every::Clock::time_point kBegin{};
Every::Clock::time_point after(double seconds) {
  return kBegin + std::chrono::duration_cast<Every::Clock::duration>(std::chrono::duration<double>(seconds));
}

TEST(Every, SoManyStepsIsDueAtTheirMultiples) {
  Every every({3, 0});
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= 9; ++step)
    if (every.due(step)) due.push_back(step);
  EXPECT_EQ(due, (std::vector<int64_t>{3, 6, 9}));
}

TEST(Every, SoManySecondsIsDueByTheClockUntilItCountsAnew) {
  Every every({0, 10}, kBegin);
  EXPECT_FALSE(every.is_time(after(9.9)));
  EXPECT_TRUE(every.is_time(after(25)));
  EXPECT_FALSE(every.due(10) || every.may_be_due(0, 1000)) << "at no step: each rank has a clock of its own";
  every.restart(after(25));
  EXPECT_FALSE(every.is_time(after(34.9))) << "ten seconds from when it was due, not from when it should have been";
  EXPECT_TRUE(every.is_time(after(35)));
}

TEST(Every, NothingIsNeverDue) {
  const Every never({}, kBegin);
  EXPECT_FALSE(never.due(1) || never.is_time(after(1e6)));
  EXPECT_FALSE(never.may_be_due(0, 1000));
}

TEST(Every, MayBeDueSoonerThanTheStepIsKnown) {
  const Every steps({5, 0});
  EXPECT_FALSE(steps.may_be_due(5, 9));
  EXPECT_TRUE(steps.may_be_due(5, 10));
  EXPECT_TRUE(steps.may_be_due(4, 6));
  EXPECT_FALSE(steps.may_be_due(5, 5)) << "the first one is behind";
}

}  // namespace
}  // namespace mortise
