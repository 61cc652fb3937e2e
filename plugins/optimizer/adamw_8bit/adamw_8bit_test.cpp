#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/normal.h"
#include "mortise/testing/fake_slice.hpp"

using namespace mortise::testing;
using mortise::kernels::normal;

namespace {

using Names = std::vector<std::string>;
const Names kNarrow = {"exp_avg", "exp_avg_sq", "exp_avg_absmax", "exp_avg_sq_absmax"};
const Names kWide = {"exp_avg", "exp_avg_sq"};

struct AdamW8Bit : testing::Test {
  AdamW8Bit() {
    host.set("betas", std::vector<double>{0.9, 0.999}).set("eps", 1e-8).set("min_8bit_size", int64_t{4096});
    host.lr = {1e-2, 1e-3};
    host.weight_decay = {0.1, 0.0};
  }
  mortise_param* param(const char* name, int64_t n, const char* role = "matrix") {
    return host.add_param(name, role, {n});
  }
  void step(const Plugin& plugin, const FakeSlice& slice, int t) {
    put<int64_t>(host.ledger().applied, t - 1);
    ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
  }
  // Everything that an update may change, as numbers.
  std::vector<double> all(const FakeSlice& s) {
    std::vector<double> numbers;
    const auto add = [&](mortise_tensor* t) {
      for (int64_t i = 0; i < mortise::Info(t).numel; ++i) numbers.push_back(host.element(t, i));
    };
    add(s.slice.master);
    for (uint32_t k = 0; k < s.slice.n_states; ++k) add(s.slice.states[k]);
    return numbers;
  }
  FakeHost host;
};

// The map by its definition, in fp64: in seven decades, each of twice as many parts as the one below, their centres.
std::vector<double> dynamic_map(bool is_signed) {
  std::vector<double> map = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    for (int i = 0; i < parts; ++i) {
      map.push_back(std::pow(10, decade - 6) * (0.1 + 0.9 * (i + 0.5) / parts));
      if (is_signed) map.push_back(-map.back());
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

// One block in fp64, its means rounded to values of the maps times the largest.
struct Reference {
  std::vector<double> p, m, v;
  explicit Reference(const std::vector<float>& start) : p(start.begin(), start.end()), m(p.size()), v(p.size()) {}
  double closest = 1;  // distance of a mean from a border between two values, relative to the mean
  void round_means(std::vector<double>& x, bool is_signed) {
    const std::vector<double> map = dynamic_map(is_signed);
    double largest = 0;
    for (const double one : x) largest = std::max(largest, std::fabs(one));
    for (double& one : x) {
      const double share = one / largest;
      const auto upper = std::max(std::lower_bound(map.begin(), map.end(), share), map.begin() + 1), lower = upper - 1;
      const double border = (*lower + *upper) / 2, at = share > border ? *upper : *lower;
      closest = std::min(closest, std::fabs(share - border) / std::fabs(share));
      one = (one < 0 && at == 0 ? map[126] : at) * largest;
    }
  }
  void step(const std::vector<float>& grad, int t) {
    const double c1 = 1 - std::pow(0.9, t), c2 = 1 - std::pow(0.999, t);
    for (size_t i = 0; i < p.size(); ++i) {
      const auto g = static_cast<double>(grad[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      p[i] = (p[i] - 1e-2 * m[i] / c1 / (std::sqrt(v[i] / c2) + 1e-8)) * (1 - 1e-2 * 0.1);
    }
    round_means(m, true);
    round_means(v, false);
  }
};

// No mean of these comes closer to a border between two values than the roundings of fp32 reach, so that both take the
// same value. What is left is these roundings: some units of 2^-24 a step, of numbers below 4.
TEST_F(AdamW8Bit, FollowsTheFormulaWithMeansRoundedToTheMaps) {
  host.set("min_8bit_size", int64_t{1});
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const std::vector<float> start = normal(200, 1);
  FakeSlice slice(host, plugin, param("w", 200), start, std::vector<float>(200));
  Reference expected(start);
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> g = normal(200, 10 + static_cast<unsigned>(t));
    std::copy(g.begin(), g.end(), mortise::Info(slice.slice.grad).as<float>());
    step(plugin, slice, t);
    expected.step(g, t);
  }
  ASSERT_GT(expected.closest, 4 * 0x1p-24);
  for (size_t i = 0; i < 200; ++i)
    ASSERT_NEAR(host.element(slice.slice.master, static_cast<int64_t>(i)), expected.p[i], 10 * 8 * 0x1p-24) << i;
}

TEST_F(AdamW8Bit, SmallParametersAndEmbeddingsKeepTheirStatesInFP32) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto states = [&](const char* name, size_t n, const char* role) {
    FakeSlice s(host, plugin, param(name, static_cast<int64_t>(n), role), std::vector<float>(n), std::vector<float>(n));
    const bool narrow = mortise::Info(s.slice.states[0]).dtype == MORTISE_U8;
    EXPECT_EQ(mortise::Info(s.slice.states[1]).dtype, narrow ? MORTISE_U8 : MORTISE_F32);
    EXPECT_EQ(host.element(s.slice.states[0], 0), narrow ? 127 : 0);
    EXPECT_EQ(s.state_names(), narrow ? kNarrow : kWide);
    return s.state_names();
  };
  EXPECT_EQ(states("a", 4095, "matrix"), kWide);
  EXPECT_EQ(states("b", 4096, "matrix"), kNarrow);
  EXPECT_EQ(states("c", 4096, "norm"), kNarrow);
  EXPECT_EQ(states("d", 100000, "embedding"), kWide);
}

TEST_F(AdamW8Bit, KeepsAScaleForEveryBlockAlsoAShortOne) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param("w", 4097), std::vector<float>(4097), std::vector<float>(4097, 0.5f));
  step(plugin, slice, 1);
  const auto scales = host.values<float>(slice.slice.states[2]);
  EXPECT_EQ(scales, std::vector<float>(17, 0.1f * 0.5f));
}

// Below the size a parameter is updated as by AdamW but for the order of the decay, which is last: 1e-5 of the weight.
TEST_F(AdamW8Bit, InFP32TakesRateAndDecayFromTheGroupOfTheSlice) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice first(host, plugin, param("a", 4), std::vector<float>(4, 1), std::vector<float>(4, 1));
  FakeSlice second(host, plugin, param("b", 4), std::vector<float>(4, 1), std::vector<float>(4, 1));
  second.slice.group = 1;
  ASSERT_EQ(update(host, plugin, {&first, &second}), MORTISE_OK);
  EXPECT_NEAR(host.element(first.slice.master, 0), (1 - 1e-2) * (1 - 1e-2 * 0.1), 4 * 0x1p-24);
  EXPECT_NEAR(host.element(second.slice.master, 0), 1 - 1e-3, 4 * 0x1p-24);
}

TEST_F(AdamW8Bit, ClearsBothStatesOfAnElementThatIsNotFinite) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  std::vector<float> g = normal(4096, 1);
  FakeSlice slice(host, plugin, param("w", 4096), normal(4096, 2), g);
  step(plugin, slice, 1);
  const double before = host.element(slice.slice.master, 1000), other = host.element(slice.slice.master, 1001);
  EXPECT_NE(host.element(slice.slice.states[0], 1000), 127);
  mortise::Info(slice.slice.grad).as<float>()[1000] = NAN;
  step(plugin, slice, 2);
  EXPECT_EQ(host.element(slice.slice.master, 1000), before);
  EXPECT_EQ(host.element(slice.slice.states[0], 1000), 127);
  EXPECT_EQ(host.element(slice.slice.states[1], 1000), 0);
  EXPECT_NE(host.element(slice.slice.master, 1001), other);
  for (const double x : all(slice)) ASSERT_TRUE(std::isfinite(x));
}

TEST_F(AdamW8Bit, ChangesNothingWhenTheVerdictIsSkip) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice narrow(host, plugin, param("a", 4096), normal(4096, 2), normal(4096, 1));
  FakeSlice wide(host, plugin, param("b", 4), std::vector<float>(4, 1), std::vector<float>(4, 1));
  ASSERT_EQ(update(host, plugin, {&narrow, &wide}), MORTISE_OK);
  const auto before = std::pair(all(narrow), all(wide));
  const int written = host.times_written(narrow.slice.master);
  put(host.ledger().verdict, 0.0);
  ASSERT_EQ(update(host, plugin, {&narrow, &wide}), MORTISE_OK);
  EXPECT_EQ(std::pair(all(narrow), all(wide)), before);
  EXPECT_EQ(host.times_written(narrow.slice.master), written);
}

// Two slices of a parameter of 5,000, cut at a block, and one of all of it: the same bits.
TEST_F(AdamW8Bit, SlicesCutAtABlockAreUpdatedAsTheWholeIs) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const std::vector<float> p = normal(5000, 2), g = normal(5000, 1);
  const auto cut = p.begin() + 2560, g_cut = g.begin() + 2560;
  FakeSlice whole(host, plugin, param("a", 5000), p, g);
  FakeSlice head(host, plugin, param("b", 5000), std::vector(p.begin(), cut), std::vector(g.begin(), g_cut));
  FakeSlice tail(host, plugin, param("c", 5000), std::vector(cut, p.end()), std::vector(g_cut, g.end()));
  tail.slice.offset = 2560;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(update(host, plugin, {&whole, &head, &tail}), MORTISE_OK) << host.error();
  std::vector<float> both = host.values<float>(head.slice.master);
  const std::vector<float> rest = host.values<float>(tail.slice.master);
  both.insert(both.end(), rest.begin(), rest.end());
  EXPECT_EQ(host.values<float>(whole.slice.master), both);
}

TEST_F(AdamW8Bit, RefusesASliceThatIsNotCutAtABlock) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param("w", 5000), std::vector<float>(512, 1), std::vector<float>(512, 1));
  slice.slice.offset = 100;
  EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_E_SHAPE);
  EXPECT_EQ(host.error(), "a slice of w, elements 100 to 612, is not cut at blocks of 256");
  slice.slice.offset = 0;
  slice.slice.length = 500;  // and it ends within the parameter
  EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_E_SHAPE);
  EXPECT_EQ(host.element(slice.slice.master, 0), 1);
}

TEST_F(AdamW8Bit, ReadsGradientsThroughTheMultiplier) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  std::vector<float> g = normal(4096, 1);
  FakeSlice plain(host, plugin, param("a", 4096), normal(4096, 2), g);
  for (float& x : g) x *= 1024;
  FakeSlice scaled(host, plugin, param("b", 4096), normal(4096, 2), g);
  ASSERT_EQ(update(host, plugin, {&plain}), MORTISE_OK);
  put(host.ledger().multiplier, 1.0 / 1024);
  ASSERT_EQ(update(host, plugin, {&scaled}), MORTISE_OK);
  EXPECT_EQ(all(plain), all(scaled));
}

// `update` fails where the value is not the master, cast.
TEST_F(AdamW8Bit, WritesTheBF16ValueInTheSamePassAndLeavesOthersToTheHost) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  int i = 0;
  for (const size_t n : {size_t{4}, size_t{4100}})
    for (const uint32_t value : {MORTISE_BF16, MORTISE_F16, MORTISE_F64}) {
      const std::string name = "w" + std::to_string(i++);
      FakeSlice slice(host, plugin, param(name.c_str(), static_cast<int64_t>(n)), normal(n, 2), normal(n, 1), value);
      EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
      EXPECT_EQ(host.times_written(slice.slice.value), 1);
    }
}

// Longer than two pieces, beside short ones: every element is updated once.
TEST_F(AdamW8Bit, UpdatesEveryElementOfLongAndShortSlices) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const size_t n = 2 * 64 * 1024 + 5;
  FakeSlice tiny(host, plugin, param("a", 1), std::vector<float>{1}, std::vector<float>{1});
  FakeSlice large(host, plugin, param("b", n), std::vector<float>(n, 1), std::vector<float>(n, 1));
  FakeSlice nothing(host, plugin, param("c", 0), std::vector<float>{}, std::vector<float>{});
  ASSERT_EQ(update(host, plugin, {&tiny, &large, &nothing}), MORTISE_OK);
  const float expected = host.values<float>(tiny.slice.master)[0];
  EXPECT_LT(expected, 1);
  EXPECT_EQ(host.values<float>(large.slice.master), std::vector<float>(n, expected));
}

TEST_F(AdamW8Bit, RefusesBetasThatAreNotTwoOrNotBelowOne) {
  for (const auto& betas : {std::vector<double>{0.9}, {0.9, 1.0}}) {
    host.set("betas", betas);
    EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
    EXPECT_EQ(host.blamed->key, "betas");
  }
}

// A block of one large gradient and zeros: the means of both become 0 beside it, and 0 / 0 would be no number.
TEST_F(AdamW8Bit, StaysFiniteWithTheLeastEpsWhereASquareBecomesZero) {
  host.set("eps", 1e-30).set("min_8bit_size", int64_t{1});
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeSlice slice(host, plugin, param("w", 3), std::vector<float>(3, 1), std::vector<float>{1, 1e-5f, 0});
  for (int t = 1; t <= 8; ++t) step(plugin, slice, t);
  EXPECT_EQ(host.element(slice.slice.states[1], 1), 0);
  for (const double x : all(slice)) ASSERT_TRUE(std::isfinite(x));
}

TEST_F(AdamW8Bit, RefusesMastersInFP64ByName) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_THROW(FakeSlice(host, plugin, param("h.0.weight", 4), std::vector<double>(4), std::vector<float>(4)),
               mortise::HostError);
  EXPECT_NE(host.error().find("h.0.weight are in fp64"), std::string::npos) << host.error();
}

}  // namespace
