#include <gtest/gtest.h>

#include <cmath>

#include "mortise/testing/fake_slice.hpp"

using namespace mortise::testing;

namespace {

struct SGD : testing::Test {
  SGD() {
    host.set("momentum", 0.0).set("nesterov", false);
    host.lr = {0.1};
    host.weight_decay = {0.01};
  }
  mortise_param* param(const char* name = "w") { return host.add_param(name, "matrix", {3}); }
  FakeHost host;
};

TEST_F(SGD, WithoutMomentumKeepsNoState) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<double>{1, -2, 0}, std::vector<double>{0.5, 0.5, -4});
  EXPECT_TRUE(slice.state_names().empty());
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  const auto p = host.values<double>(slice.slice.master);
  EXPECT_DOUBLE_EQ(p[0], 1 - 0.1 * (0.5 + 0.01 * 1));
  EXPECT_DOUBLE_EQ(p[1], -2 - 0.1 * (0.5 + 0.01 * -2));
  EXPECT_DOUBLE_EQ(p[2], 0.4);
}

TEST_F(SGD, StartsItsMomentumWithTheFirstGradient) {
  host.set("momentum", 0.9);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<double>{1, 1, 1}, std::vector<double>{2, 2, 2});
  EXPECT_EQ(slice.state_names(), std::vector<std::string>{"momentum_buffer"});
  double p = 1, b = 0;
  for (int t = 0; t < 4; ++t) {
    ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
    const double g = 2 + 0.01 * p;
    b = t == 0 ? g : 0.9 * b + g;
    p -= 0.1 * b;
  }
  EXPECT_DOUBLE_EQ(host.values<double>(slice.slice.master)[1], p);
  EXPECT_DOUBLE_EQ(host.values<double>(slice.slice.states[0])[1], b);
}

TEST_F(SGD, LooksAheadWithNesterov) {
  host.set("momentum", 0.5).set("nesterov", true);
  host.weight_decay = {0};
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<double>{1, 1, 1}, std::vector<double>{2, 2, 2});
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_DOUBLE_EQ(host.values<double>(slice.slice.master)[0], 1 - 0.1 * (2 + 0.5 * 2));
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_DOUBLE_EQ(host.values<double>(slice.slice.master)[0], 0.7 - 0.1 * (2 + 0.5 * 3));
}

TEST_F(SGD, RefusesNesterovWithoutMomentum) {
  host.set("nesterov", true);
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.blamed->key, "nesterov");
}

TEST_F(SGD, ChangesNothingWhenTheVerdictIsSkip) {
  host.set("momentum", 0.9);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<float>(3, 1), std::vector<float>(3, NAN));
  put(host.ledger().verdict, 0.0);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_EQ(host.values<float>(slice.slice.master), std::vector<float>(3, 1));
  EXPECT_EQ(host.values<float>(slice.slice.states[0]), std::vector<float>(3, 0));
}

TEST_F(SGD, ReadsGradientsOfAnyFloatDtypeThroughTheMultiplier) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice plain(host, plugin, param("a"), std::vector<float>(3, 1), std::vector<float>(3, 0.5f));
  FakeSlice wide(host, plugin, param("b"), std::vector<float>(3, 1), std::vector<double>(3, 0.5));
  FakeSlice half(host, plugin, param("c"), std::vector<float>(3, 1), std::vector<uint16_t>(3, 0x3F00));
  FakeSlice scaled(host, plugin, param("d"), std::vector<float>(3, 1), std::vector<float>(3, 512));
  ASSERT_EQ(update(host, plugin, {&plain, &wide, &half}), MORTISE_OK);
  put(host.ledger().multiplier, 1.0 / 1024);
  ASSERT_EQ(update(host, plugin, {&scaled}), MORTISE_OK);
  for (const FakeSlice* s : {&wide, &half, &scaled})
    EXPECT_EQ(host.values<float>(s->slice.master), host.values<float>(plain.slice.master));
}

TEST_F(SGD, WritesTheBF16Value) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param(), std::vector<float>(3, 1.01f), std::vector<float>(3, 0), MORTISE_BF16);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_EQ(host.values<uint16_t>(slice.slice.value), std::vector<uint16_t>(3, 0x3F81));
}

TEST_F(SGD, LeavesAValueOfAnotherDtypeToTheHostsCast) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const uint32_t dtype : {MORTISE_F32, MORTISE_F16}) {
    FakeSlice slice(host, plugin, param(), std::vector<double>(3, 1), std::vector<double>(3, 1), dtype);
    ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
    EXPECT_NEAR(host.element(slice.slice.value, 0), 0.899, 1e-3);
  }
}

}  // namespace
