#include <gtest/gtest.h>

#include <cmath>

#include "mortise/testing/fake_slice.hpp"

using namespace mortise::testing;
using mortise::Tensor;

namespace {

// A parameter of any shape with what the plugin asks to keep of it, rows and columns too.
struct Slice {
  template <class Master, class Grad>
  Slice(FakeHost& host, const Plugin& plugin, mortise_param* param, const std::vector<int64_t>& sizes,
        const std::vector<Master>& master, const std::vector<Grad>& grad, uint32_t value_dtype = MORTISE_NO_DTYPE)
      : info(mortise::info_of(param)), p(host.tensor(sizes, master)), g(host.tensor(sizes, grad)) {
    info.master_dtype = dtype_of<Master>();
    if (value_dtype) value = mortise::empty(value_dtype, sizes);
    mortise_state_spec specs[MORTISE_MAX_STATES] = {};
    uint32_t n = 0;
    mortise::check(plugin.object<mortise_optimizer>("optimizer").states(plugin.self(), &info, specs, &n));
    for (uint32_t i = 0; i < n; ++i) {
      std::vector<int64_t> of = sizes;
      const std::string relation(mortise::view(specs[i].relation));
      if (relation == "rows") of.pop_back();
      if (relation == "columns") of.erase(of.end() - 2);
      names += std::string(mortise::view(specs[i].name)) + ":" + relation + " ";
      states.push_back(mortise::empty(specs[i].dtype, of));
      for (int64_t e = 0; e < mortise_numel(of); ++e) host.set_element(states.back().get(), e, specs[i].fill);
      handles.push_back(states.back().get());
    }
    slice = {sizeof(mortise_slice), n, 0, 0, param, &info, 0, info.numel, p.get(), g.get(), value.get(),
             handles.data()};
  }
  static int64_t mortise_numel(const std::vector<int64_t>& sizes) {
    int64_t n = 1;
    for (const int64_t size : sizes) n *= size;
    return n;
  }
  mortise_param_info info;
  Tensor p, g, value;
  std::string names;
  std::vector<Tensor> states;
  std::vector<mortise_tensor*> handles;
  mortise_slice slice{};
};

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
  Slice matrix(const Plugin& plugin, const std::vector<Master>& p, const std::vector<float>& g,
               uint32_t value_dtype = MORTISE_NO_DTYPE) {
    return {host, plugin, param({2, 3}), {2, 3}, p, g, value_dtype};
  }
  void step(const Plugin& plugin, std::initializer_list<const Slice*> slices, int t = 1) {
    std::vector<mortise_slice> flat;
    for (const Slice* s : slices) flat.push_back(s->slice);
    put<int64_t>(host.ledger().applied, t - 1);
    ASSERT_EQ(plugin.object<mortise_optimizer>("optimizer")
                  .step(plugin.self(), flat.data(), static_cast<uint32_t>(flat.size()), &host.ledger()),
              MORTISE_OK)
        << host.error();
  }
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
    const Slice slice = matrix(plugin, kWeights, kGradient);
    Reference expected{{{1, -1, 0.5}, {2, 0, -0.25}}};
    for (int t = 1; t <= 5; ++t) {
      step(plugin, {&slice}, t);
      expected.step(t, 1e-2, 0.1, beta1);
    }
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR(host.element(slice.p.get(), i), expected.p[i / 3][i % 3], 5 * kBoundAStep) << beta1 << " " << i;
  }
}

TEST_F(Adafactor, KeepsARowAndAColumnOfAMatrixAndAllOfAVector) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto kept = [&](const Plugin& by, const std::vector<int64_t>& sizes) {
    const std::vector<float> x(static_cast<size_t>(Slice::mortise_numel(sizes)));
    return Slice(host, by, param(sizes), sizes, x, x).names;
  };
  EXPECT_EQ(kept(plugin, {2, 3}), "exp_avg_sq_row:rows exp_avg_sq_col:columns ");
  EXPECT_EQ(kept(plugin, {4, 2, 3}), "exp_avg_sq_row:rows exp_avg_sq_col:columns ");
  EXPECT_EQ(kept(plugin, {6}), "exp_avg_sq:same ");
  host.set("beta1", 0.9);
  Plugin with_moment(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(kept(with_moment, {2, 3}), "exp_avg_sq_row:rows exp_avg_sq_col:columns exp_avg:same ");
  EXPECT_EQ(kept(with_moment, {6}), "exp_avg_sq:same exp_avg:same ");
}

// Of the first step U is the gradient's sign where all rows and columns are alike: p falls by the rate.
double first_step(Adafactor& test, float weight, int t = 1) {
  Plugin plugin(test.host, MORTISE_PLUGIN_FILE);
  const Slice slice = test.matrix(plugin, std::vector<float>(6, weight), std::vector<float>(6, 1));
  mortise_slice one = slice.slice;
  one.group = 1;
  put<int64_t>(test.host.ledger().applied, t - 1);
  EXPECT_EQ(plugin.object<mortise_optimizer>("optimizer").step(plugin.self(), &one, 1, &test.host.ledger()),
            MORTISE_OK);
  return static_cast<double>(weight) - test.host.element(slice.p.get(), 0);
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
  const Slice slice = matrix(plugin, std::vector<float>(6, 1), std::vector<float>(6, NAN));
  put(host.ledger().verdict, 0.0);
  step(plugin, {&slice});
  EXPECT_EQ(host.values<float>(slice.p.get()), std::vector<float>(6, 1));
  EXPECT_EQ(host.values<float>(slice.states[0].get()), std::vector<float>(2, 0));
  EXPECT_EQ(host.values<float>(slice.states[1].get()), std::vector<float>(3, 0));
  EXPECT_EQ(host.values<float>(slice.states[2].get()), std::vector<float>(6, 0));
  EXPECT_EQ(host.times_written(slice.p.get()), 0);
}

TEST_F(Adafactor, ReadsGradientsThroughTheMultiplier) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  std::vector<float> scaled = kGradient;
  for (float& g : scaled) g *= 1024;
  const Slice one = matrix(plugin, kWeights, kGradient), other = matrix(plugin, kWeights, scaled);
  step(plugin, {&one});
  put(host.ledger().multiplier, 1.0 / 1024);
  step(plugin, {&other});
  EXPECT_EQ(host.values<float>(one.p.get()), host.values<float>(other.p.get()));
  EXPECT_EQ(host.values<float>(one.states[0].get()), host.values<float>(other.states[0].get()));
}

TEST_F(Adafactor, WritesOrCastsTheValue) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_TRUE(plugin.object<mortise_optimizer>("optimizer").flags & MORTISE_WRITES_VALUE);
  const auto expect_cast = [&](const Slice& slice) {
    step(plugin, {&slice});
    EXPECT_EQ(wrong_value(host, slice.slice, std::vector<double>(6, -9), 0), "");
  };
  expect_cast(matrix(plugin, kWeights, kGradient, MORTISE_BF16));
  expect_cast(matrix(plugin, kWeights, kGradient, MORTISE_F16));
  expect_cast(matrix(plugin, std::vector<uint16_t>(6, 0x3F80), kGradient, MORTISE_F32));
}

// One parameter of each kind at once: pieces of one do not touch another.
TEST_F(Adafactor, UpdatesParametersOfAllShapesInOneStep) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto of = [&](const std::vector<int64_t>& sizes) {
    const auto n = static_cast<size_t>(Slice::mortise_numel(sizes));
    return Slice(host, plugin, param(sizes), sizes, std::vector<float>(n, 1), std::vector<float>(n, 1));
  };
  const Slice vector = of({5}), large = of({130, 1030}), nothing = of({0, 4}), cube = of({2, 3, 4}), scalar = of({});
  step(plugin, {&vector, &large, &nothing, &cube, &scalar});
  const float expected = host.values<float>(vector.p.get())[0];
  EXPECT_NEAR(static_cast<double>(expected), 1 - 1e-3 - 1e-2, 4 * 0x1p-24);
  for (const Slice* s : {&vector, &large, &cube, &scalar})
    for (const float x : host.values<float>(s->p.get())) ASSERT_EQ(x, expected);
}

TEST_F(Adafactor, RefusesValuesThatMeanNothing) {
  const auto blamed = [&] {
    EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
    return host.blamed ? host.blamed->key : "";
  };
  host.set("eps", std::vector<double>{1e-30});
  EXPECT_EQ(blamed(), "eps");
  host.set("eps", std::vector<double>{0.0, 1e-3});
  EXPECT_EQ(blamed(), "eps");
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
