#include <gtest/gtest.h>

#include <limits>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

mortise_value amount(double number, uint32_t unit) { return {MORTISE_AMOUNT, unit, {.f = number}}; }

struct Accumulation : testing::Test {
  Accumulation() {
    host.unset("count").unset("global_batch_size");
    host.clock.micro_batch_size = 16;
    host.clock.ranks = 8;
    host.clock.sequence_length = 1024;
  }
  int32_t window() {
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    return plugin.notify("step.window") == MORTISE_OK ? host.window : -1;
  }
  FakeHost host;
};

TEST_F(Accumulation, TakesAsManyMicroBatchesAsCountSays) {
  host.set("count", 4);
  EXPECT_EQ(window(), 4);
}

TEST_F(Accumulation, SplitsAGlobalBatchOverRanksAndMicroBatches) {
  host.set("global_batch_size", amount(512, MORTISE_SAMPLES));
  EXPECT_EQ(window(), 4);
  host.clock.ranks = 1;
  EXPECT_EQ(window(), 32);
}

TEST_F(Accumulation, CountsTokensBySequences) {
  host.set("global_batch_size", amount(524288, MORTISE_TOKENS));
  EXPECT_EQ(window(), 4);
}

TEST_F(Accumulation, RefusesABatchThatCannotBeSplitAndNamesRanksThatCan) {
  host.set("global_batch_size", amount(512, MORTISE_SAMPLES));
  host.clock.ranks = 6;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.status(), MORTISE_E_CONFIG);
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "global_batch_size");
  EXPECT_EQ(host.blamed->why, "512 samples a step cannot be split over 6 ranks of 16");
  EXPECT_EQ(host.blamed->code, "batch_arithmetic");
  EXPECT_EQ(host.blamed->beside, "512 / (16 × 6) = 5.33");
  EXPECT_EQ(host.blamed->fix, "--ranks 4");
}

TEST_F(Accumulation, NamesTheMicroBatchThatKeepsTheBatch) {
  host.set("global_batch_size", amount(24, MORTISE_SAMPLES));
  host.clock.ranks = 2;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->fix, "--set data.micro_batch_size=12");
  host.set("global_batch_size", amount(int64_t{26} * 1024, MORTISE_TOKENS));
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->fix, "--set data.micro_batch_size=13");
}

TEST_F(Accumulation, RefusesTokensLikewise) {
  host.set("global_batch_size", amount(100000, MORTISE_TOKENS));
  host.clock.ranks = 1;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->why, "100,000 tokens a step cannot be split over micro-batches of 16 × 1024");
  EXPECT_EQ(host.blamed->beside, "100000 / (16 × 1024) = 6.10");
  EXPECT_EQ(host.blamed->fix, "--set 'step.accumulation.global_batch_size=98304 tokens'");
}

TEST_F(Accumulation, NeverProposesAnEmptyStep) {
  host.set("global_batch_size", amount(3, MORTISE_SAMPLES));
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->fix, "--set step.accumulation.global_batch_size=128");
}

TEST_F(Accumulation, ShowsThatNearlyWholeIsNotWhole) {
  host.set("global_batch_size", amount(64001, MORTISE_SAMPLES));
  host.clock.ranks = 1;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->beside, "64001 / 16 = 4000.06");
  host.set("global_batch_size", amount(16001, MORTISE_SAMPLES));
  host.clock.micro_batch_size = 4000;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->beside, "16001 / 4000 = 4.0003");
}

// It knows no codes and nothing beside a position; what is the case and the fix arrive all the same.
TEST_F(Accumulation, RefusesUnderAnOlderHostToo) {
  static mortise_config_api older = *static_cast<const mortise_config_api*>(mortise_get(&host, "mortise.config/0"));
  older.struct_size = offsetof(mortise_config_api, refuse);
  host.offer("mortise.config/0", &older);
  host.set("global_batch_size", amount(500, MORTISE_SAMPLES));
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->code, "refused_value");
  EXPECT_EQ(host.blamed->why, "500 samples a step cannot be split over 8 ranks of 16");
}

TEST_F(Accumulation, RefusesTokensForDataWithoutASequenceLength) {
  host.set("global_batch_size", amount(4096, MORTISE_TOKENS));
  host.clock.sequence_length = 0;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->key, "global_batch_size");
}

// 2^63 - 1 as 32 bits is -1.
TEST_F(Accumulation, RefusesMoreMicroBatchesThanTheHostCounts) {
  host.set("count", std::numeric_limits<int64_t>::max());
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.blamed->why, "9,223,372,036,854,775,807 micro-batches make no step; 1,000,000 is the most");
  host.set("count", 1'000'000);
  EXPECT_EQ(window(), 1'000'000);

  host.unset("count").set("global_batch_size", amount(0x1p40, MORTISE_SAMPLES));
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->why, "8,589,934,592 micro-batches make no step; 1,000,000 is the most");
}

TEST_F(Accumulation, RefusesSizesThatCannotBeCounted) {
  host.set("global_batch_size", amount(9.3e18, MORTISE_SAMPLES));
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->why, "these are more samples or tokens than can be counted");
  host.set("global_batch_size", amount(4096, MORTISE_TOKENS));
  host.clock.sequence_length = int64_t{1} << 60;
  EXPECT_EQ(window(), -1);
  EXPECT_EQ(host.blamed->why, "these are more samples or tokens than can be counted");
}

TEST_F(Accumulation, RefusesBothKeysAndNeither) {
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.blamed->key, "count");
  host.set("count", 4).set("global_batch_size", amount(512, MORTISE_SAMPLES));
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_NE(host.blamed->why.find("two ways"), std::string::npos);
}

}  // namespace
