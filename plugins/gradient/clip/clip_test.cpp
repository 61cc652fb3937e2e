#include <gtest/gtest.h>

#include <cmath>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

struct Clip : testing::Test {
  Clip() {
    host.set("norm", 1.0);
    const auto unary = [this](const char* name, double (*f)(double, double)) {
      host.op(name, [this, f](std::span<const mortise_value> a) {
        return host.tensor<double>({}, {f(host.number(a[0].v.t), a.size() > 1 ? a[1].v.f : 0)});
      });
    };
    unary("aten::add.Scalar", [](double x, double y) { return x + y; });
    unary("aten::mul.Scalar", [](double x, double y) { return x * y; });
    unary("aten::reciprocal", [](double x, double) { return 1 / x; });
    unary("aten::clamp_max", [](double x, double y) { return x > y ? y : x; });
  }
  double factor_for(double norm) {
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    host.norm = norm;
    EXPECT_EQ(plugin.notify("grad.transform"), MORTISE_OK) << host.error();
    return host.factors.back();
  }
  FakeHost host;
};

TEST_F(Clip, LeavesASmallGradientExactlyAsItIs) {
  EXPECT_EQ(factor_for(0.0), 1.0);
  EXPECT_EQ(factor_for(0.5), 1.0);
  EXPECT_EQ(factor_for(0.999), 1.0);
  host.set("norm", 2.0);
  EXPECT_EQ(factor_for(0.5), 1.0);
}

TEST_F(Clip, ScalesALargeOneToTheNormAsTorchDoes) {
  EXPECT_DOUBLE_EQ(factor_for(4.0), 1.0 / (4.0 + 1e-6));
  host.set("norm", 0.25);
  EXPECT_DOUBLE_EQ(factor_for(4.0), 0.25 / (4.0 + 1e-6));
}

TEST_F(Clip, GivesAFloat64ScalarAndLeavesNothingBehind) {
  factor_for(4.0);
  EXPECT_EQ(host.live_tensors(), 0u);
}

// Whether the step counts is the verdict's business.
TEST_F(Clip, DoesNotHideAGradientThatIsNotFinite) {
  EXPECT_TRUE(std::isnan(factor_for(NAN)));
  EXPECT_EQ(factor_for(HUGE_VAL), 0.0);
}

}  // namespace
