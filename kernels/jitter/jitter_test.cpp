// Jitter against its definition, element by element.
#include "kernels/jitter/jitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace mortise::kernels;

namespace {

constexpr mortise_philox kPlace = {{1, 2}, 3, 4, 5};

std::vector<float> factors(int64_t n, double amount, const mortise_philox& place = kPlace) {
  std::vector<float> x(static_cast<size_t>(n));
  jitter(place, amount, x.data(), 0, n);
  return x;
}

TEST(Jitter, TakesTheSixteenBitsOfItsElement) {
  const std::vector<float> x = factors(1003, 0.1);
  for (size_t e = 0; e < x.size(); ++e) {
    uint16_t bits[8];
    mortise_philox_block(&kPlace, e / 8, bits);
    ASSERT_EQ(x[e], static_cast<float>(1 + 0.1 * ((2.0 * bits[e % 8] + 1) / 65536 - 1))) << e;
  }
}

TEST(Jitter, IsTheSameHoweverATensorIsCut) {
  const std::vector<float> whole = factors(1003, 0.1);
  std::vector<float> pieces(1003);
  for (const auto& [begin, end] : {std::pair(0, 3), {3, 8}, {8, 701}, {701, 1003}})
    jitter(kPlace, 0.1, pieces.data(), begin, end);
  EXPECT_EQ(pieces, whole);
}

// The deviation of the mean of n even numbers in [-1, 1] is sqrt(1 / 3n).
TEST(Jitter, LiesEvenlyAroundOne) {
  const int64_t n = 1 << 20;
  double mean = 0, square = 0;
  const std::vector<float> x = factors(n, 0.5);
  for (const float f : x) {
    mean += (f - 1) / 0.5 / static_cast<double>(n);
    square += std::pow((f - 1) / 0.5, 2) / static_cast<double>(n);
  }
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(3.0 * static_cast<double>(n)));
  EXPECT_NEAR(square, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / static_cast<double>(n)));
  const auto [least, most] = std::ranges::minmax(x);
  EXPECT_GE(least, 0.5f);
  EXPECT_LE(most, 1.5f);
  EXPECT_LT(least, 0.501f);
  EXPECT_GT(most, 1.499f);
}

TEST(Jitter, IsAnotherAtEachPlace) {
  const std::vector<float> here = factors(8, 0.1);
  for (const mortise_philox& place : {mortise_philox{{9, 2}, 3, 4, 5}, mortise_philox{{1, 2}, 9, 4, 5},
                                      mortise_philox{{1, 2}, 3, 9, 5}, mortise_philox{{1, 2}, 3, 4, 9}})
    EXPECT_NE(factors(8, 0.1, place), here);
}

}  // namespace
