#include <gtest/gtest.h>

#include <cmath>

#include "mortise/testing/fake_slice.hpp"

using namespace mortise::testing;

namespace {

struct AdamW : testing::Test {
  AdamW() {
    host.set("betas", std::vector<double>{0.9, 0.999}).set("eps", 1e-8);
    host.lr = {1e-2, 1e-3};
    host.weight_decay = {0.1, 0.0};
  }
  mortise_param* param(const char* name = "w") { return host.add_param(name, "matrix", {4}); }
  FakeHost host;
};

// The same, written as the paper has it, for one element in fp64.
struct Scalar {
  double p, m = 0, v = 0;
  void step(double g, int t, double lr, double weight_decay) {
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    p -= lr * (weight_decay * p + m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8));
  }
};

TEST_F(AdamW, FollowsThePapersFormulaOverSeveralSteps) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const std::vector<double> g = {0.5, -2, 1e-4, 3};
  FakeSlice slice(host, plugin, param(), std::vector<double>{1, -1, 0.5, 0}, g);
  Scalar expected[] = {{1}, {-1}, {0.5}, {0}};
  for (int t = 1; t <= 5; ++t) {
    put<int64_t>(host.ledger().applied, t - 1);
    ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
    for (size_t i = 0; i < 4; ++i) expected[i].step(g[i], t, 1e-2, 0.1);
  }
  const auto p = host.values<double>(slice.slice.master);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(p[i], expected[i].p, 1e-14);
}

TEST_F(AdamW, KeepsTwoMeansInTheDtypeOfTheMaster) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<double>(4), std::vector<float>(4));
  EXPECT_EQ(slice.state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(mortise::Info(slice.slice.states[0]).dtype, MORTISE_F64);
}

TEST_F(AdamW, TakesRateAndDecayFromTheGroupOfTheSlice) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice first(host, plugin, param("a"), std::vector<double>(4, 1), std::vector<double>(4, 1));
  FakeSlice second(host, plugin, param("b"), std::vector<double>(4, 1), std::vector<double>(4, 1));
  second.slice.group = 1;
  ASSERT_EQ(update(host, plugin, {&first, &second}), MORTISE_OK);
  EXPECT_NEAR(host.values<double>(first.slice.master)[0], 1 - 1e-2 * 0.1 - 1e-2, 1e-9);
  EXPECT_NEAR(host.values<double>(second.slice.master)[0], 1 - 1e-3, 1e-9);
}

TEST_F(AdamW, ChangesNothingWhenTheVerdictIsSkip) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<float>(4, 1), std::vector<float>(4, NAN));
  put(host.ledger().verdict, 0.0);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_EQ(host.values<float>(slice.slice.master), std::vector<float>(4, 1));
  EXPECT_EQ(host.values<float>(slice.slice.states[0]), std::vector<float>(4, 0));
  EXPECT_EQ(host.times_written(slice.slice.master), 0);
}

TEST_F(AdamW, ReadsGradientsThroughTheMultiplier) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice plain(host, plugin, param("a"), std::vector<float>(4, 1), std::vector<float>(4, 0.25f));
  FakeSlice scaled(host, plugin, param("b"), std::vector<float>(4, 1), std::vector<float>(4, 256));
  ASSERT_EQ(update(host, plugin, {&plain}), MORTISE_OK);
  put(host.ledger().multiplier, 1.0 / 1024);
  ASSERT_EQ(update(host, plugin, {&scaled}), MORTISE_OK);
  EXPECT_EQ(host.values<float>(plain.slice.master), host.values<float>(scaled.slice.master));
  EXPECT_EQ(host.values<float>(plain.slice.states[1]), host.values<float>(scaled.slice.states[1]));
}

TEST_F(AdamW, WritesTheBF16ValueInTheSamePass) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_TRUE(plugin.object<mortise_optimizer>("optimizer").flags & MORTISE_WRITES_VALUE);
  FakeSlice slice(host, plugin, param(), std::vector<float>(4, 1.01f), std::vector<float>(4, 0), MORTISE_BF16);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_EQ(host.values<uint16_t>(slice.slice.value), std::vector<uint16_t>(4, 0x3F81));  // 1.00899 -> 1.0078125
  EXPECT_EQ(host.times_written(slice.slice.value), 1);
}

TEST_F(AdamW, LeavesAValueOfAnotherDtypeToTheHostsCast) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const uint32_t dtype : {MORTISE_F32, MORTISE_F16}) {
    FakeSlice slice(host, plugin, param(), std::vector<double>(4, 1), std::vector<double>(4, 1), dtype);
    ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
    EXPECT_NEAR(host.element(slice.slice.value, 0), 0.989, 1e-3);
  }
}

// Longer than two pieces, beside a short one: every element is updated once.
TEST_F(AdamW, UpdatesEveryElementOfLongAndShortSlices) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const size_t n = 2 * 64 * 1024 + 5;
  FakeSlice tiny(host, plugin, param("a"), std::vector<float>{1}, std::vector<float>{1});
  FakeSlice large(host, plugin, param("b"), std::vector<float>(n, 1), std::vector<float>(n, 1));
  FakeSlice nothing(host, plugin, param("c"), std::vector<float>{}, std::vector<float>{});
  FakeSlice last(host, plugin, param("d"), std::vector<float>{1, 1}, std::vector<float>{1, 1});
  ASSERT_EQ(update(host, plugin, {&tiny, &large, &nothing, &last}), MORTISE_OK);
  const float expected = host.values<float>(tiny.slice.master)[0];
  EXPECT_LT(expected, 1);
  EXPECT_EQ(host.values<float>(large.slice.master), std::vector<float>(n, expected));
  EXPECT_EQ(host.values<float>(last.slice.master), std::vector<float>(2, expected));
}

TEST_F(AdamW, RefusesBetasThatAreNotTwoOrNotBelowOne) {
  host.set("betas", std::vector<double>{0.9});
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.blamed->key, "betas");
  host.set("betas", std::vector<double>{0.9, 1.0});
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
}

TEST_F(AdamW, RefusesMastersInHalfPrecisionByName) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_THROW(FakeSlice(host, plugin, param("h.0.weight"), std::vector<uint16_t>(4), std::vector<float>(4)),
               mortise::HostError);
  EXPECT_NE(host.error().find("h.0.weight"), std::string::npos) << host.error();
}

}  // namespace
