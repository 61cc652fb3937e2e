// The cross-entropy against its definition in long doubles.
#include "kernels/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cross_entropy/element.h"
#include "kernels/cross_entropy/test_rows.h"

namespace mortise::kernels {
namespace {

// A row of the definition: the loss, and its gradient times `scale`.
struct Reference {
  long double loss = 0;
  std::vector<long double> gradient;
  template <class T>
  Reference(const TestRows<T>& t, int64_t row, long double scale) : gradient(static_cast<size_t>(t.columns)) {
    const int64_t label = t.labels[static_cast<size_t>(row)];
    if (label == kNoLabel) return;
    long double most = -std::numeric_limits<long double>::infinity(), sum = 0;
    for (int64_t c = 0; c < t.valid; ++c) most = std::max(most, t.at(row, c));
    for (int64_t c = 0; c < t.valid; ++c) sum += std::exp(t.at(row, c) - most);
    const long double s = t.smoothing, valid = static_cast<long double>(t.valid);
    for (int64_t c = 0; c < t.valid; ++c) {
      const long double log_p = t.at(row, c) - most - std::log(sum);
      const long double target = (c == label ? 1 - s : 0) + s / valid;
      loss -= target * log_p;
      gradient[static_cast<size_t>(c)] = (std::exp(log_p) - target) * scale;
    }
  }
};

// Bounds, with u the half of a unit in the last place and D the largest distance of a logit from the reference. A
// distance is rounded by D u, and e^x makes that a relative error, to which its own adds 2 u; sums of a tree have at
// most (columns / kLanes + 11) u more, and so does the loss. A probability sees those of the sum as well. Twice that.
// What is given in 16 bits is rounded once more.
template <class T>
void expect_the_definition(TestRows<T> t) {
  using W = Wide<T>;
  const W scale = W(0.37);
  t.run(scale);
  const double u = std::numeric_limits<W>::epsilon() / 2;
  const double rounding = std::is_same_v<T, BF16> ? 0x1p-8 : std::is_same_v<T, F16> ? 0x1p-11 : u;
  for (int64_t row = 0; row < t.rows; ++row) {
    const Reference reference(t, row, static_cast<long double>(scale));
    const double spread = t.spread(row), terms = static_cast<double>(t.columns) / kLanes + 11;
    const double off = 2 * (2 * spread + terms + 4) * u;
    EXPECT_NEAR(static_cast<double>(t.loss[static_cast<size_t>(row)]), static_cast<double>(reference.loss),
                off * (1 + static_cast<double>(reference.loss)))
        << "row " << row;
    for (int64_t c = 0; c < t.columns; ++c) {
      const auto expected = static_cast<double>(reference.gradient[static_cast<size_t>(c)]);
      ASSERT_NEAR(t.gradient_at(row, c), expected,
                  rounding * std::abs(expected) + off * static_cast<double>(scale) + (sizeof(T) == 2 ? 0x1p-25 : 0))
          << "row " << row << ", column " << c;
      if (c >= t.valid || t.labels[static_cast<size_t>(row)] == kNoLabel) {
        ASSERT_EQ(t.gradient_at(row, c), 0) << c;
      }
    }
  }
}

template <class T>
struct CrossEntropy : testing::Test {};
using Types = testing::Types<float, double, BF16, F16>;
TYPED_TEST_SUITE(CrossEntropy, Types);

TYPED_TEST(CrossEntropy, IsItsDefinitionForEveryWidth) {
  for (const int64_t columns : {1, 2, 7, 8, 51, 2047, 2048, 2049, 5000})
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      SCOPED_TRACE(testing::Message() << columns << " columns, smoothing " << smoothing);
      expect_the_definition(TestRows<TypeParam>(5, columns, columns, smoothing, 3));
    }
}

TYPED_TEST(CrossEntropy, CountsPaddingAsMinusInfinity) {
  for (const int64_t valid : {1, 50, 63})
    for (const double smoothing : {0.0, 0.2}) expect_the_definition(TestRows<TypeParam>(4, 64, valid, smoothing, 3));
}

// Logits of hundreds, with the label's far below the largest: the sum of e^(x - x_y) overflows in F32.
TYPED_TEST(CrossEntropy, TakesLossesOfHundreds) {
  for (const double smoothing : {0.0, 0.1}) {
    TestRows<TypeParam> t(6, 300, 300, smoothing, 200);
    expect_the_definition(t);
    t.run(1);
    EXPECT_GT(*std::max_element(t.loss.begin(), t.loss.end()), 200);
  }
}

TYPED_TEST(CrossEntropy, LeavesNothingOfWhatIsMinusInfinity) {
  TestRows<TypeParam> t(1, 9, 9, 0, 3);
  t.set(0, 4, -kInfinity<float>);
  t.labels = {2};
  TestRows<TypeParam> without = t;
  t.run(1);
  EXPECT_EQ(t.gradient_at(0, 4), 0);
  without.set(0, 4, -1000);
  without.run(1);
  EXPECT_EQ(t.loss, without.loss);
  t.labels = {4};
  t.run(1);
  EXPECT_EQ(t.loss[0], kInfinity<float>);
}

TYPED_TEST(CrossEntropy, LetsNothingThatIsNotANumberVanish) {
  for (const float bad : {kNotANumber<float>, kInfinity<float>}) {
    TestRows<TypeParam> t(2, 70, 70, 0, 3);
    t.labels = {1, 2};
    t.set(0, 65, bad);
    t.run(1);
    EXPECT_TRUE(std::isnan(t.loss[0]));
    EXPECT_TRUE(std::isnan(t.gradient_at(0, 1)));
    EXPECT_TRUE(std::isfinite(t.loss[1]));
    EXPECT_TRUE(std::isfinite(t.gradient_at(1, 1)));
  }
}

TYPED_TEST(CrossEntropy, ALabelThatIsNoClassMakesItsRowNoNumber) {
  TestRows<TypeParam> t(4, 16, 12, 0.1, 3);
  t.labels = {12, -1, 11, -100};
  t.run(1);
  for (const size_t row : {0, 1}) {
    EXPECT_TRUE(std::isnan(t.loss[row]));
    for (int64_t c = 0; c < 12; ++c) EXPECT_TRUE(std::isnan(t.gradient_at(static_cast<int64_t>(row), c)));
  }
  EXPECT_TRUE(std::isfinite(t.loss[2]));
  EXPECT_EQ(t.loss[3], 0);
}

TYPED_TEST(CrossEntropy, GivesTheSameBitsHoweverRowsAreCutAndInPlace) {
  TestRows<TypeParam> whole(7, 999, 990, 0.1, 3), pieces = whole;
  whole.run(0.5);
  const CrossEntropyRows rows = pieces.arrays();
  for (const int64_t row : {6, 0, 3, 1, 2, 5, 4})
    cross_entropy(rows, &pieces.loss[0], &pieces.statistics[0], row, row + 1);
  const Wide<TypeParam> scale = 0.5;
  cross_entropy_gradient(rows, &pieces.statistics[0], &scale, &pieces.logits[0], 3, 7);
  cross_entropy_gradient(rows, &pieces.statistics[0], &scale, &pieces.logits[0], 0, 3);
  EXPECT_EQ(whole.loss, pieces.loss);
  EXPECT_EQ(0, std::memcmp(whole.gradient.data(), pieces.logits.data(), whole.gradient.size() * sizeof(TypeParam)));
}

TEST(F16, HasTheBitsOfTheSdk) {
  for (uint32_t h = 0; h < 1u << 16; ++h) {
    F16 x;
    x.bits = static_cast<uint16_t>(h);
    const float wide = mortise_f16_to_float(x.bits);
    ASSERT_EQ(mortise_float_bits(static_cast<float>(x)), mortise_float_bits(wide)) << h;
  }
  // The borders and the middles of all its numbers, and their neighbours.
  for (uint32_t high = 0; high < 1u << 19; ++high)
    for (const uint32_t low : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x1FFFu}) {
      const float x = mortise_float_of_bits(high << 13 | low);
      ASSERT_EQ(F16(x).bits, mortise_f16_from_float(x)) << x;
    }
}

// Against the library's in long doubles, over all that is not 0 or infinite: 2 units of the last place.
template <class W>
void expect_exp_near(W low, W high) {
  double worst = 0;
  for (int i = 0; i <= 200'000; ++i) {
    const W d = low + (high - low) * static_cast<W>(i) / 200'000;
    const long double exact = std::exp(static_cast<long double>(d));
    worst = std::max(worst, static_cast<double>(std::abs(exp_on_host(d) - exact) / exact));
  }
  EXPECT_LT(worst, 2 * std::numeric_limits<W>::epsilon());
}
TEST(Exp, IsThatOfTheLibrary) {
  expect_exp_near<float>(-87, 88);
  expect_exp_near<double>(-708, 709);
  EXPECT_EQ(exp_on_host(0.f), 1.f);
  EXPECT_EQ(exp_on_host(0.), 1.);
}
TEST(Exp, EndsInZeroAndInfinity) {
  for (const float d : {-87.5f, -1e4f, -3e38f, -kInfinity<float>}) EXPECT_EQ(exp_on_host(d), 0) << d;
  for (const float d : {88.5f, 1e4f, 3e38f, kInfinity<float>}) EXPECT_EQ(exp_on_host(d), kInfinity<float>) << d;
  EXPECT_TRUE(std::isnan(exp_on_host(kNotANumber<float>)));
  for (const double d : {-709., -1e300}) EXPECT_EQ(exp_on_host(d), 0) << d;
  EXPECT_TRUE(std::isnan(exp_on_host(kNotANumber<double>)));
}

}  // namespace
}  // namespace mortise::kernels
