#include <gtest/gtest.h>

#include <algorithm>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

struct MeanWeights : testing::Test {
  MeanWeights() {
    host.set("decay", 0.9);
    host.set("warmup", false);
    host.set("evaluate", true);
    const auto number = [this](const mortise_value& v) {
      if (v.tag == MORTISE_TENSOR) return host.number(v.v.t);
      return v.tag == MORTISE_INT ? static_cast<double>(v.v.i) : v.v.f;
    };
    const auto scalar = [this](double x) { return host.tensor<double>({}, {x}); };
    host.op("aten::to.dtype", [this](auto args) {
      const mortise::Info is(args[0].v.t);
      mortise::Tensor t = mortise::empty(static_cast<uint32_t>(args[1].v.i), is.shape());
      host.copy(t.get(), args[0].v.t);
      return t;
    });
    host.op("aten::clone", [this](auto args) {
      const mortise::Info is(args[0].v.t);
      mortise::Tensor t = mortise::empty(is.dtype, is.shape());
      host.copy(t.get(), args[0].v.t);
      return t;
    });
    host.op("aten::fill_.Scalar", [this, number](auto args) {
      return host.set_element(args[0].v.t, 0, number(args[1])), mortise::Tensor::share(args[0].v.t);
    });
    host.op("aten::eq.Scalar",
            [this, number](auto args) { return host.tensor<bool>({}, {number(args[0]) == number(args[1])}); });
    host.op("aten::maximum", [=](auto args) { return scalar(std::max(number(args[0]), number(args[1]))); });
    host.op("aten::mul.Tensor", [=](auto args) { return scalar(number(args[0]) * number(args[1])); });
    host.op("aten::mul.Scalar", [=](auto args) { return scalar(number(args[0]) * number(args[1])); });
    host.op("aten::add.Scalar", [=](auto args) { return scalar(number(args[0]) + number(args[1])); });
    host.op("aten::reciprocal", [=](auto args) { return scalar(1 / number(args[0])); });
    host.op("aten::lerp_.Tensor", [this, number](auto args) {
      for (int64_t i = 0; i < mortise::Info(args[0].v.t).numel; ++i) {
        const double mean = host.element(args[0].v.t, i), master = host.element(args[1].v.t, i);
        host.set_element(args[0].v.t, i, mean + number(args[2]) * (master - mean));
      }
      return mortise::Tensor::share(args[0].v.t);
    });
    w = host.add_param("w", "matrix", {2});
  }
  void declare(Plugin& plugin, mortise_param* p) {
    mortise_event event{};
    event.param = p;
    ASSERT_EQ(plugin.notify("params.declared", event), MORTISE_OK) << host.error();
  }
  void set(double a, double b) {
    host.set_element(host.master(w), 0, a);
    host.set_element(host.master(w), 1, b);
  }
  // One step after which the weights are these.
  void step(Plugin& plugin, double a, double b, bool apply = true) {
    if (apply) set(a, b);
    host.set_element(host.ledger().verdict, 0, apply);
    ASSERT_EQ(plugin.notify("step.commit"), MORTISE_OK) << host.error();
    host.set_element(host.ledger().applied, 0, host.number(host.ledger().applied) + apply);
  }
  double mean(int64_t i) { return host.element(host.kept(w, 0), i); }
  FakeHost host;
  mortise_param* w;
};

TEST_F(MeanWeights, TheFirstStepCopiesAndEachNextMovesByItsShare) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  declare(plugin, w);
  step(plugin, 1, -2);
  EXPECT_EQ(mean(0), 1);
  EXPECT_EQ(mean(1), -2);
  step(plugin, 2, -2);
  EXPECT_FLOAT_EQ(static_cast<float>(mean(0)), 1.1f);
  EXPECT_EQ(mean(1), -2);
}

TEST_F(MeanWeights, ASkippedStepMovesNothing) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  declare(plugin, w);
  step(plugin, 1, 1, false);
  EXPECT_EQ(mean(0), 0);  // the first weights
  step(plugin, 1, 1);
  step(plugin, 2, 2);
  const double before = mean(0);
  ASSERT_NE(before, 2) << "else it could not move";
  step(plugin, 2, 2, false);
  EXPECT_EQ(mean(0), before);
}

TEST_F(MeanWeights, WarmupHasAShortMemoryAtFirst) {
  host.set("warmup", true);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  declare(plugin, w);
  step(plugin, 0, 0);
  step(plugin, 11, 0);  // one step was applied before: the decay is 2/11
  EXPECT_FLOAT_EQ(static_cast<float>(mean(0)), 9);
}

TEST_F(MeanWeights, AnEvaluationHasTheMeanAndTrainingItsOwn) {
  std::vector<double> seen;
  FakeChain chain(host, [&](mortise_call&) {
    seen = {host.element(host.master(w), 0), host.element(host.master(w), 1)};
    return mortise_status{MORTISE_E_DATA};
  });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  declare(plugin, w);
  step(plugin, 1, 1);
  step(plugin, 2, 2);
  FakeCall call({}, 0);
  ASSERT_EQ(chain.wrap(plugin, "eval", call), MORTISE_E_DATA);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_FLOAT_EQ(static_cast<float>(seen[0]), 1.1f);
  EXPECT_EQ(host.element(host.master(w), 0), 2) << "after a failure too";
  EXPECT_EQ(host.published, (std::vector<std::string>{"w", "w"}));
}

TEST_F(MeanWeights, WithoutEvaluateItLeavesEvaluationsAlone) {
  host.set("evaluate", false);
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_OK}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  declare(plugin, w);
  step(plugin, 2, 2);
  FakeCall call({}, 0);
  EXPECT_EQ(chain.wrap(plugin, "eval", call), MORTISE_OK);
  EXPECT_TRUE(host.published.empty());
}

TEST_F(MeanWeights, AFrozenParameterHasNoMean) {
  mortise_param* frozen = host.add_param("b", "buffer", {2});
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  declare(plugin, frozen);
  EXPECT_THROW(host.kept(frozen, 0), std::out_of_range);
}

}  // namespace
