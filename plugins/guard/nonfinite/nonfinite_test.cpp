#include <gtest/gtest.h>

#include <cmath>

#include "mortise/cpp/text.hpp"
#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

struct NonFinite : testing::Test {
  NonFinite() {
    host.set("stop_after", 3);
    host.op("aten::isfinite", [&](std::span<const mortise_value> args) {
      return host.tensor<bool>({}, {std::isfinite(host.number(args[0].v.t))});
    });
    host.op("aten::clone",
            [&](std::span<const mortise_value> args) { return host.tensor<double>({}, {host.number(args[0].v.t)}); });
  }
  static FakeRecord step(int skipped) { return std::move(FakeRecord("step").add("skipped", skipped)); }
  FakeHost host;
};

TEST_F(NonFinite, VotesForAFiniteGradientAndAgainstAnyOther) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const double norm : {1.0, 0.0, HUGE_VAL, double(NAN)}) {
    host.norm = norm;
    ASSERT_EQ(plugin.notify("step.verdict"), MORTISE_OK);
  }
  EXPECT_EQ(host.votes, (std::vector<double>{1, 1, 0, 0}));
}

TEST_F(NonFinite, EndsTheRunAfterThreeSkippedStepsInARow) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const int skipped : {1, 1, 0, 1, 1}) plugin.notify("record", step(skipped));
  EXPECT_TRUE(host.requests.empty());
  plugin.notify("record", step(1));
  ASSERT_EQ(host.requests.size(), 1u);
  EXPECT_EQ(host.requests[0].what, static_cast<uint32_t>(MORTISE_ABORT));
  EXPECT_EQ(host.requests[0].reason, "the gradient was not finite in 3 steps in a row");
}

TEST_F(NonFinite, DoesNotBlameAGradientThatWasFinite) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (int i = 0; i < 3; ++i) plugin.notify("record", step(1).add("grad_norm", 1.5));
  ASSERT_EQ(host.requests.size(), 1u);
  EXPECT_EQ(host.requests[0].reason, "a plugin voted against 3 steps in a row");
}

TEST_F(NonFinite, GoesOnCountingInARunThatGoesOn) {
  std::string saved;
  {
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    for (int i = 0; i < 2; ++i) plugin.notify("record", step(1));
    saved = plugin.saved("in_a_row");
  }
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.load("in_a_row", 1, saved), MORTISE_OK);
  plugin.notify("record", step(1));
  EXPECT_EQ(host.requests.size(), 1u);
}

TEST_F(NonFinite, EndsARunThatGoesOnWithFewerSkipsAllowedThanThereWere) {
  host.set("stop_after", 2);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.load("in_a_row", 1, "5"), MORTISE_OK);
  plugin.notify("record", step(1));
  ASSERT_EQ(host.requests.size(), 1u);
  EXPECT_EQ(host.requests[0].reason, "the gradient was not finite in 6 steps in a row");
}

TEST_F(NonFinite, AsksOnceOnly) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (int i = 0; i < 8; ++i) plugin.notify("record", step(1));
  EXPECT_EQ(host.requests.size(), 1u);
}

TEST_F(NonFinite, LooksAtRecordsOfStepsOnly) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  plugin.notify("record", step(1));
  plugin.notify("record", step(1));
  plugin.notify("record", FakeRecord("eval").add("loss", 1.0));  // does not end the row
  plugin.notify("record", step(1));
  EXPECT_EQ(host.requests.size(), 1u);
}

TEST_F(NonFinite, AStepThatHadNothingToLearnIsNoneOfThem) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (int i = 0; i < 5; ++i) plugin.notify("record", step(1).add("skipped_reason", "nothing to learn"));
  EXPECT_TRUE(host.requests.empty());
  for (int i = 0; i < 2; ++i) plugin.notify("record", step(1));
  plugin.notify("record", step(1).add("skipped_reason", "nothing to learn"));  // does not end the row
  plugin.notify("record", step(1));
  EXPECT_EQ(host.requests.size(), 1u);
}

TEST_F(NonFinite, SaysStepWhenOneIsEnough) {
  host.set("stop_after", 1);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  plugin.notify("record", step(1));
  EXPECT_EQ(host.requests.at(0).reason, "the gradient was not finite in 1 step");
}

TEST_F(NonFinite, AddsToTheRecordHowManyStepsWereSkippedAndHowManyMayBe) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const int expected : {1, 2}) {
    ASSERT_EQ(plugin.notify("record", step(1)), MORTISE_OK);
    const mortise::Columns columns(*host.columns.get());
    EXPECT_EQ(columns.integer("skipped_in_a_row"), expected);
    EXPECT_EQ(columns.integer("stop_after"), 3);
  }
  plugin.notify("record", step(0));
  EXPECT_TRUE(mortise::Columns(*host.columns.get()).all().empty());
}

// The warm-up of fp16: the scale is halved until nothing overflows.
TEST_F(NonFinite, CountsNoSkipAfterWhichTheLossScaleFell) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  double scale = 65536;
  plugin.notify("record", step(0).add("scale", scale));
  for (int i = 0; i < 10; ++i) plugin.notify("record", step(1).add("scale", scale /= 2));
  EXPECT_TRUE(host.requests.empty());
  for (int i = 0; i < 3; ++i) plugin.notify("record", step(1).add("scale", scale));  // it helps no more
  EXPECT_EQ(host.requests.size(), 1u);
}

// Nothing was recorded before: the factor is that of the ledger in the first step, of a resumed run too.
TEST_F(NonFinite, CountsNoSkipAfterWhichTheFirstLossScaleFell) {
  host.set("stop_after", 1);
  host.set_element(host.ledger().scale, 0, 65536);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  host.norm = HUGE_VAL;
  ASSERT_EQ(plugin.notify("step.verdict"), MORTISE_OK) << host.error();
  plugin.notify("record", step(1).add("scale", 32768.0));
  EXPECT_TRUE(host.requests.empty());
  plugin.notify("record", step(1).add("scale", 32768.0));
  EXPECT_EQ(host.requests.size(), 1u);
}

TEST_F(NonFinite, RefusesACountThatIsNone) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const char* text : {"", "?", "3 "}) EXPECT_EQ(plugin.load("in_a_row", 1, text), MORTISE_E_DATA) << text;
}

}  // namespace
