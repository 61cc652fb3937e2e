#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "mortise/testing/fake_slice.hpp"

using namespace mortise::testing;

namespace {

struct Adafactor : testing::Test {
  Adafactor() {
    host.set("eps", std::vector<double>{1e-30, 1e-3}).set("clip_threshold", 1.0).set("decay_rate", -0.8);
    host.set("scale_parameter", false).set("relative_step", false).set("warmup_init", false).unset("beta1");
    host.lr = {1e-2, 1e-3};
    host.weight_decay = {0.1, 0.0};
  }
  mortise_param* param(const std::vector<int64_t>& sizes) {
    return host.add_param("p" + std::to_string(++params), sizes.size() < 2 ? "vector" : "matrix", sizes);
  }
  template <class Master = float>
  FakeSlice matrix(const Plugin& plugin, const std::vector<Master>& p, const std::vector<float>& g,
                   uint32_t value_dtype = MORTISE_NO_DTYPE) {
    return {host, plugin, param({2, 3}), p, g, value_dtype};
  }
  // Weights and gradients of 1.
  FakeSlice ones(const Plugin& plugin, const std::vector<int64_t>& sizes) {
    mortise_param* const p = param(sizes);
    const std::vector<float> all(static_cast<size_t>(mortise::info_of(p).numel), 1);
    return {host, plugin, p, all, all};
  }
  void step(const Plugin& plugin, std::initializer_list<const FakeSlice*> slices, int t = 1) {
    put<int64_t>(host.ledger().applied, t - 1);
    ASSERT_EQ(update(host, plugin, slices), MORTISE_OK) << host.error();
  }
  std::vector<float> weights(const FakeSlice& s) { return host.values<float>(s.slice.master); }
  std::vector<float> state(const FakeSlice& s, size_t i) { return host.values<float>(s.slice.states[i]); }
  FakeHost host;
  int params = 0;
};

const std::vector<float> kWeights = {1, -1, 0.5f, 2, 0, -0.25f}, kGradient = {0.5f, -2, 1e-4f, 3, 0, 1};

// transformers' Adafactor written for one 2 × 3 matrix in fp64.
struct Reference {
  double p[2][3], row[2] = {}, column[3] = {}, moment[2][3] = {};
  void step(int t, double lr, double weight_decay, double beta1) {
    const double beta2 = 1 - std::pow(t, -0.8);
    double mean_row[2] = {}, mean_column[3] = {}, u[2][3], squares = 0;
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 3; ++c) {
        const double g = static_cast<double>(kGradient[static_cast<size_t>(3 * r + c)]);
        mean_row[r] += (g * g + 1e-30) / 3;
        mean_column[c] += (g * g + 1e-30) / 2;
      }
    for (int r = 0; r < 2; ++r) row[r] = beta2 * row[r] + (1 - beta2) * mean_row[r];
    for (int c = 0; c < 3; ++c) column[c] = beta2 * column[c] + (1 - beta2) * mean_column[c];
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 3; ++c) {
        const double g = static_cast<double>(kGradient[static_cast<size_t>(3 * r + c)]);
        u[r][c] = g / std::sqrt(row[r] / ((row[0] + row[1]) / 2)) / std::sqrt(column[c]);
        squares += u[r][c] * u[r][c] / 6;
      }
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 3; ++c) {
        double update = u[r][c] / std::max(1.0, std::sqrt(squares)) * lr;
        if (beta1 > 0) update = moment[r][c] = beta1 * moment[r][c] + (1 - beta1) * update;
        p[r][c] = p[r][c] - weight_decay * lr * p[r][c] - update;
      }
  }
};

// Weights of at most 2, whose last place is 2^-23, are rounded twice a step; updates, far smaller, add less.
constexpr double kBoundAStep = 3 * 0x1p-24;

TEST_F(Adafactor, FollowsTransformersOverSeveralSteps) {
  for (const double beta1 : {0.0, 0.9}) {
    if (beta1 > 0) host.set("beta1", beta1);
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    const FakeSlice slice = matrix(plugin, kWeights, kGradient);
    Reference expected{{{1, -1, 0.5}, {2, 0, -0.25}}};
    for (int t = 1; t <= 5; ++t) {
      step(plugin, {&slice}, t);
      expected.step(t, 1e-2, 0.1, beta1);
    }
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR(host.element(slice.slice.master, i), expected.p[i / 3][i % 3], 5 * kBoundAStep) << beta1 << " " << i;
  }
}

TEST_F(Adafactor, KeepsARowAndAColumnOfAMatrixAndAllOfAVector) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  using Kept = std::vector<std::string>;  // names and numbers of elements
  const auto kept = [&](const Plugin& by, const std::vector<int64_t>& sizes) {
    const FakeSlice slice = ones(by, sizes);
    Kept all = slice.state_names();
    for (size_t i = 0; i < all.size(); ++i) all[i] += " " + std::to_string(state(slice, i).size());
    return all;
  };
  EXPECT_EQ(kept(plugin, {2, 3}), (Kept{"exp_avg_sq_row 2", "exp_avg_sq_col 3"}));
  EXPECT_EQ(kept(plugin, {4, 2, 3}), (Kept{"exp_avg_sq_row 8", "exp_avg_sq_col 12"}));
  EXPECT_EQ(kept(plugin, {6}), Kept{"exp_avg_sq 6"});
  host.set("beta1", 0.9);
  Plugin with_moment(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(kept(with_moment, {2, 3}), (Kept{"exp_avg_sq_row 2", "exp_avg_sq_col 3", "exp_avg 6"}));
  EXPECT_EQ(kept(with_moment, {6}), (Kept{"exp_avg_sq 6", "exp_avg 6"}));
}

// By README.md, and two numbers a tile and a few a matrix.
TEST_F(Adafactor, SaysWhatAGpuKeepsBesideAMatrix) {
  const Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto& optimizer = plugin.object<mortise_optimizer>("optimizer");
  const auto bytes = [&](const std::vector<int64_t>& sizes, uint32_t device) {
    int64_t n = -1;
    EXPECT_EQ(optimizer.workspace(plugin.self(), &mortise::info_of(param(sizes)), device, &n), MORTISE_OK);
    return n;
  };
  std::string toml = MORTISE_PLUGIN_FILE;
  std::ifstream file(toml.replace(toml.rfind(".so"), 3, ".toml"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const bool has_kernels = text.find("\"cuda\"") != text.npos;  // else it was built for the CPU alone
  EXPECT_EQ(bytes({768, 3072}, MORTISE_CUDA),
            has_kernels ? 8 * (2 + 18 + 18 + 768 * 3 + 6 * 3072 / 2 + 6 + 1 + 1536) : 0);
  EXPECT_EQ(bytes({6}, MORTISE_CUDA), has_kernels ? 8 * 4 : 0);
  EXPECT_EQ(bytes({768, 3072}, MORTISE_CPU), 0);
}

// Of the first step U is the gradient's sign where all rows and columns are alike: p falls by the rate.
double first_step(Adafactor& test, float weight, int t = 1) {
  Plugin plugin(test.host, MORTISE_PLUGIN_FILE);
  FakeSlice slice = test.matrix(plugin, std::vector<float>(6, weight), std::vector<float>(6, 1));
  slice.slice.group = 1;
  test.step(plugin, {&slice}, t);
  return static_cast<double>(weight) - test.host.element(slice.slice.master, 0);
}

TEST_F(Adafactor, TakesItsRateFromTheFamilyTheWeightsAndTheStep) {
  constexpr double kRounding = 0x1p-23;  // of weights of at most 4, twice
  EXPECT_NEAR(first_step(*this, 2), 1e-3, kRounding);
  host.set("scale_parameter", true);
  EXPECT_NEAR(first_step(*this, 2), 2e-3, kRounding);
  EXPECT_NEAR(first_step(*this, 0), 1e-6, 1e-12);  // the least scale
  host.set("scale_parameter", false).set("relative_step", true);
  mortise::Info(host.ledger().lr).as<double>()[1] = 1;
  EXPECT_NEAR(first_step(*this, 2), 1e-2, kRounding);
  EXPECT_NEAR(first_step(*this, 2, 1'000'000), 1e-3, kRounding);
  host.set("warmup_init", true);
  EXPECT_NEAR(first_step(*this, 2, 100), 1e-4, kRounding);
  mortise::Info(host.ledger().lr).as<double>()[1] = 0.5;
  EXPECT_NEAR(first_step(*this, 2, 100), 5e-5, kRounding);
}

TEST_F(Adafactor, ChangesNothingWhenTheVerdictIsSkip) {
  host.set("beta1", 0.9);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const FakeSlice slice = matrix(plugin, std::vector<float>(6, 1), std::vector<float>(6, NAN));
  put(host.ledger().verdict, 0.0);
  step(plugin, {&slice});
  EXPECT_EQ(weights(slice), std::vector<float>(6, 1));
  EXPECT_EQ(state(slice, 0), std::vector<float>(2, 0));
  EXPECT_EQ(state(slice, 1), std::vector<float>(3, 0));
  EXPECT_EQ(state(slice, 2), std::vector<float>(6, 0));
  EXPECT_EQ(host.times_written(slice.slice.master), 0);
}

TEST_F(Adafactor, ReadsGradientsThroughTheMultiplier) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  std::vector<float> scaled = kGradient;
  for (float& g : scaled) g *= 1024;
  const FakeSlice one = matrix(plugin, kWeights, kGradient), other = matrix(plugin, kWeights, scaled);
  step(plugin, {&one});
  put(host.ledger().multiplier, 1.0 / 1024);
  step(plugin, {&other});
  EXPECT_EQ(weights(one), weights(other));
  EXPECT_EQ(state(one, 0), state(other, 0));
}

TEST_F(Adafactor, WritesOrCastsTheValue) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_TRUE(plugin.object<mortise_optimizer>("optimizer").flags & MORTISE_WRITES_VALUE);
  const FakeSlice bf16 = matrix(plugin, kWeights, kGradient, MORTISE_BF16),
                  fp16 = matrix(plugin, kWeights, kGradient, MORTISE_F16),
                  wide = matrix(plugin, std::vector<uint16_t>(6, 0x3F80), kGradient, MORTISE_F32);
  step(plugin, {&bf16, &fp16, &wide});  // looks at the values
}

// One parameter of each kind at once: pieces of one do not touch another, and no state is another's.
TEST_F(Adafactor, UpdatesParametersOfAllShapesInOneStep) {
  for (const double beta1 : {0.0, 0.9}) {
    if (beta1 > 0) host.set("beta1", beta1);
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    const FakeSlice vector = ones(plugin, {5}), large = ones(plugin, {130, 1030}), nothing = ones(plugin, {0, 4}),
                    cube = ones(plugin, {2, 3, 4}), scalar = ones(plugin, {});
    step(plugin, {&vector, &large, &nothing, &cube, &scalar});
    const float expected = weights(vector)[0];
    EXPECT_NEAR(static_cast<double>(expected), 1 - 1e-3 - 1e-2 * (1 - beta1), 4 * 0x1p-24);
    for (const FakeSlice* s : {&vector, &large, &cube, &scalar})
      for (const float x : weights(*s)) ASSERT_EQ(x, expected);
  }
}

TEST_F(Adafactor, RefusesValuesThatMeanNothing) {
  const auto blamed = [&] {
    EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
    return host.blamed ? host.blamed->key : "";
  };
  host.set("eps", std::vector<double>{1e-30});
  EXPECT_EQ(blamed(), "eps");
  for (const double none : {0.0, 1e-50}) {  // in fp32 both are
    host.set("eps", std::vector<double>{none, 1e-3});
    host.blamed.reset();
    EXPECT_EQ(blamed(), "eps") << none;
    EXPECT_EQ(host.blamed->why.find("is 0 in fp32") != std::string::npos, none > 0) << host.blamed->why;
  }
  host.set("eps", std::vector<double>{1e-30, 1e-3}).set("beta1", 1.0);
  EXPECT_EQ(blamed(), "beta1");
  host.set("beta1", 0.9).set("warmup_init", true);
  EXPECT_EQ(blamed(), "warmup_init");
}

TEST_F(Adafactor, RefusesMastersInFP64ByName) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_THROW(matrix(plugin, std::vector<double>(6), kGradient), mortise::HostError);
  EXPECT_NE(host.error().find("p1 are in fp64"), std::string::npos) << host.error();
}

}  // namespace
