// The adapter of mortise/simple_optimizer.h, with lists.c, which uses all of it. Against LibTorch: tests/optimizer.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "mortise/testing/fake_lists.hpp"
#include "mortise/testing/fake_slice.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Doubles = std::vector<double>;

struct Simple : ::testing::Test {
  Simple() {
    define_lists(host);
    host.lr = {0.5, 0.25};
    host.weight_decay = {0.1, 0};
  }
  mortise_param* param(const char* name) { return host.add_param(name, "matrix", {2}); }
  FakeHost host;
};

// What lists.c does, for one element.
struct Scalar {
  double p, a = 0, b = 0;
  void step(double g, double lr, double decay, double applied) {
    const double half = (a + g) / 2;
    a = a + 0.5 * (half - a);
    b += 2 * g * g;
    p -= lr * a / (std::sqrt(b) + 1);
    p *= 1 - decay;
    p += applied * ((half > 0) - (half < 0));
  }
};

TEST_F(Simple, AKeyThatIsNotThereRefusesThePlugin) {
  setenv("LISTS_READS", "nokey", 1);
  try {
    const Plugin plugin(host, LISTS);
    ADD_FAILURE() << "it was made";
  } catch (const PluginError& e) {
    EXPECT_EQ(std::string(e.what()).substr(0, 28), "`nokey` is read as an int, a");
  }
  unsetenv("LISTS_READS");
  const Plugin plugin(host, LISTS);
}

TEST_F(Simple, EachGroupIsUpdatedWithItsOwnNumbers) {
  Plugin plugin(host, LISTS);
  FakeSlice first(host, plugin, param("a"), Doubles{1, -1}, Doubles{0.5, -2});
  FakeSlice second(host, plugin, param("b"), Doubles{3, 4}, Doubles{-1, 8});
  FakeSlice third(host, plugin, param("c"), Doubles{5, 6}, Doubles{2, 0});
  second.slice.group = 1;
  EXPECT_EQ(first.state_names(), (std::vector<std::string>{"a", "b"}));
  put(host.ledger().multiplier, 0.5);
  Scalar x[] = {{1}, {-1}}, y[] = {{3}, {4}}, z[] = {{5}, {6}};
  for (int t = 0; t < 3; ++t) {
    put<int64_t>(host.ledger().applied, t);
    ASSERT_EQ(update(host, plugin, {&first, &second, &third}), MORTISE_OK) << host.error();
    x[0].step(0.25, 0.5, 0.1, t), x[1].step(-1, 0.5, 0.1, t);
    y[0].step(-0.5, 0.25, 0, t), y[1].step(4, 0.25, 0, t);
    z[0].step(1, 0.5, 0.1, t), z[1].step(0, 0.5, 0.1, t);
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(host.values<double>(first.slice.master)[i], x[i].p, 1e-14);
    EXPECT_NEAR(host.values<double>(second.slice.master)[i], y[i].p, 1e-14);
    EXPECT_NEAR(host.values<double>(third.slice.master)[i], z[i].p, 1e-14);
    EXPECT_NEAR(host.values<double>(second.slice.states[1])[i], y[i].b, 1e-14);
  }
}

TEST_F(Simple, AStepThatIsSkippedChangesNothing) {
  Plugin plugin(host, LISTS);
  FakeSlice slice(host, plugin, param("a"), Doubles{1, -1}, Doubles{NAN, 1});
  put(host.ledger().verdict, 0.0);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_EQ(host.values<double>(slice.slice.master), (Doubles{1, -1}));
  EXPECT_EQ(host.values<double>(slice.slice.states[0]), (Doubles{0, 0}));
}

TEST_F(Simple, GradientsAreScaledInTheDtypeOfTheMaster) {
  Plugin plugin(host, LISTS);
  put(host.ledger().multiplier, 1.0 / 3);  // no bf16 is a third of one
  FakeSlice half(host, plugin, param("a"), std::vector<float>{1, 1}, std::vector<uint16_t>{0x3F80, 0xBF80});
  FakeSlice same(host, plugin, param("b"), std::vector<float>{1, 1}, std::vector<float>{1, -1});
  ASSERT_EQ(update(host, plugin, {&half, &same}), MORTISE_OK) << host.error();
  EXPECT_EQ(host.values<float>(half.slice.master), host.values<float>(same.slice.master));
  EXPECT_EQ(host.values<float>(half.slice.states[1]), host.values<float>(same.slice.states[1]));
}

TEST_F(Simple, TheHostCastsTheValue) {
  Plugin plugin(host, LISTS);
  EXPECT_EQ(plugin.object<mortise_optimizer>("optimizer").flags & MORTISE_WRITES_VALUE, 0U);
}

// The lists made before and the one half made are released: the host would complain.
TEST_F(Simple, TheFirstFailureEndsTheStepAndIsReturned) {
  int calls_after = 0;
  host.op_list("aten::_foreach_sqrt", [](std::span<const mortise_value>) -> std::vector<Tensor> {
    throw std::runtime_error("no roots here");
  });
  host.op_list("aten::_foreach_mul_.Scalar",
               [&](std::span<const mortise_value>) { return ++calls_after, std::vector<Tensor>(); });
  Plugin plugin(host, LISTS);
  FakeSlice slice(host, plugin, param("a"), Doubles{1, -1}, Doubles{1, 1});
  EXPECT_NE(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_EQ(host.error(), "no roots here");
  EXPECT_EQ(host.values<double>(slice.slice.master), (Doubles{1, -1}));
  EXPECT_EQ(calls_after, 0);
}

TEST_F(Simple, AStateThatIsNotNamedFailsTheStep) {
  Plugin plugin(host, LISTS);
  FakeSlice slice(host, plugin, param("a"), Doubles{1, -1}, Doubles{1, 1});
  setenv("LISTS_UNNAMED", "1", 1);
  EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_E_ARGUMENT);
  unsetenv("LISTS_UNNAMED");
  EXPECT_EQ(host.error(), "a list is NULL: a state that is not named?");
  EXPECT_EQ(host.values<double>(slice.slice.master), (Doubles{1, -1})) << "nothing after it is done";
}

TEST_F(Simple, AStepWithoutGradientsIsNone) {
  Plugin plugin(host, LISTS);
  EXPECT_EQ(update(host, plugin, {}), MORTISE_OK);
}

TEST_F(Simple, AHostThatLacksWhatItNeedsIsNamed) {
  host.withhold("mortise.ops/0");
  try {
    Plugin plugin(host, LISTS);
    FAIL();
  } catch (const PluginError& e) {
    EXPECT_EQ(e.status, MORTISE_E_NOT_FOUND);
    EXPECT_STREQ(e.what(), "this host has no mortise.ops/0");
  }
}
}  // namespace
