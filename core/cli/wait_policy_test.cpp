#include "core/cli/wait_policy.hpp"

#include <gtest/gtest.h>

namespace mortise::cli {
namespace {

TEST(WaitPolicy, SpinsOnlyWithManyProcessorsToItself) {
  EXPECT_STREQ(policy_for(16, "0.20 4.19 2.42 2/312 4711"), "");
  EXPECT_STREQ(policy_for(16, "1.60 0.00 0.00 2/312 4711"), "");
  EXPECT_STREQ(policy_for(16, "1.70 0.00 0.00 2/312 4711"), "passive");
  EXPECT_STREQ(policy_for(7, "0.00 0.00 0.00 1/312 4711"), "passive");
}

TEST(WaitPolicy, SleepsWhereNobodySaysWhatElseRuns) {
  EXPECT_STREQ(policy_for(64, ""), "passive");
  EXPECT_STREQ(policy_for(64, "busy"), "passive");
}

}  // namespace
}  // namespace mortise::cli
