#include "kernels/noise/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/noise/element.h"
#include "mortise/dtype.h"

using namespace mortise::kernels;

namespace {

constexpr mortise_philox kPlace = {{1, 2}, 3, 4, 0};

std::vector<float> noise(int64_t n, double deviation = 1, mortise_philox place = kPlace) {
  std::vector<float> x(static_cast<size_t>(n));
  add_noise(place, deviation, MORTISE_F32, x.data(), 0, 0, n);
  return x;
}

// Moments of n numbers lie within a few of their own deviations: sqrt(1/n), sqrt(2/n), sqrt(15/n), sqrt(96/n).
TEST(Noise, HasTheMomentsOfANormal) {
  const int64_t n = 1 << 20;
  double moment[4] = {};
  for (const float x : noise(n))
    for (int k = 0; k < 4; ++k) moment[k] += std::pow(static_cast<double>(x), k + 1) / static_cast<double>(n);
  const double unit = 5 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(moment[0], 0, unit);
  EXPECT_NEAR(moment[1], 1, unit * std::sqrt(2));
  EXPECT_NEAR(moment[2], 0, unit * std::sqrt(15));
  EXPECT_NEAR(moment[3], 3, unit * std::sqrt(96));
}

// Our own functions against the library's, in fp64: within two units of the last place of an fp32 near 1.
TEST(Noise, KnowsLogarithmSineAndCosine) {
  double apart = 0;
  for (uint64_t word = 0; word <= 0xFFFFFFFFu; word += 9'973) {
    const auto uniform = static_cast<float>((static_cast<double>(word) + 1) * 0x1p-32);
    const double log = std::log(static_cast<double>(uniform));
    apart = std::max(apart, std::abs(noise_log(uniform) - log) / std::max(1.0, -log));
    const double angle = static_cast<double>(word) * (6.283185307179586 * 0x1p-32);
    const NoiseDirection d = noise_direction(static_cast<uint32_t>(word));
    apart = std::max({apart, std::abs(d.cosine - std::cos(angle)), std::abs(d.sine - std::sin(angle))});
  }
  EXPECT_LT(apart, 0x1p-22);
  EXPECT_EQ(noise_log(1), 0);
  EXPECT_NEAR(noise_log(0x1p-32f), -32 * std::log(2.0), 2e-6);
  for (const float near_1 : {1 - 0x1p-24f, 1 - 0x1p-20f, 0.99f, 0.7072f, 0.7071f})
    EXPECT_NEAR(noise_log(near_1) / std::log(static_cast<double>(near_1)), 1, 0x1p-22) << near_1;
}

// A quarter of a turn has a cosine of 0, not of something small: the four directions are exact.
TEST(Noise, KnowsTheFourQuarters) {
  const float expected[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
  for (uint32_t quarter = 0; quarter < 4; ++quarter) {
    const NoiseDirection d = noise_direction(quarter << 30);
    EXPECT_EQ(d.cosine, expected[quarter][0]) << quarter;
    EXPECT_EQ(d.sine, expected[quarter][1]) << quarter;
  }
}

// On every machine, of every compiler.
TEST(Noise, HasTheseBits) {
  EXPECT_EQ(noise(4), (std::vector<float>{-0x1.ad548ap-3f, 0x1.e1fe1p+0f, -0x1.56b4a8p-1f, 0x1.ae6968p+0f}));
}

TEST(Noise, NeighboursAreIndependent) {
  const std::vector<float> x = noise(1 << 20);
  for (const size_t lag : {1u, 2u, 3u, 4u}) {
    double together = 0;
    for (size_t i = lag; i < x.size(); ++i) together += static_cast<double>(x[i]) * static_cast<double>(x[i - lag]);
    EXPECT_NEAR(together / static_cast<double>(x.size()), 0, 5 / std::sqrt(static_cast<double>(x.size()))) << lag;
  }
}

TEST(Noise, IsTheSameHoweverATensorIsCut) {
  const std::vector<float> whole = noise(1000);
  std::vector<float> ranges(1000), slice(600);
  for (const auto& [begin, end] : {std::pair(0, 3), {3, 700}, {700, 1000}})
    add_noise(kPlace, 1, MORTISE_F32, ranges.data(), 0, begin, end);
  EXPECT_EQ(ranges, whole);
  add_noise(kPlace, 1, MORTISE_F32, slice.data(), 390, 0, 600);
  EXPECT_EQ(slice, std::vector<float>(whole.begin() + 390, whole.begin() + 990));
}

TEST(Noise, IsAddedTimesItsDeviation) {
  std::vector<float> x = {1, 2, 3};
  const std::vector<float> unit = noise(3);
  add_noise(kPlace, 0.5, MORTISE_F32, x.data(), 0, 0, 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(x[i], static_cast<float>(i + 1) + 0.5f * unit[i]);
}

TEST(Noise, IsAnotherAtEachPlace) {
  const std::vector<float> here = noise(8);
  for (const mortise_philox& place :
       {mortise_philox{{9, 2}, 3, 4, 0}, mortise_philox{{1, 2}, 9, 4, 0}, mortise_philox{{1, 2}, 3, 9, 0}})
    EXPECT_NE(noise(8, 1, place), here);
}

TEST(Noise, LeavesTheBitsOfAnFP64GradientThatItDoesNotChange) {
  std::vector<double> x(8, 1 + 0x1p-40);
  add_noise(kPlace, 0, MORTISE_F64, x.data(), 0, 0, 8);
  EXPECT_EQ(x, std::vector<double>(8, 1 + 0x1p-40));
  add_noise(kPlace, 1, MORTISE_F64, x.data(), 0, 0, 8);
  EXPECT_EQ(x[0], 1 + 0x1p-40 + static_cast<double>(noise(1)[0]));
}

TEST(Noise, RoundsOnceInSixteenBits) {
  const std::vector<float> unit = noise(64);
  std::vector<uint16_t> bf16(64, mortise_bf16_from_float(1)), f16(64, mortise_f16_from_float(1));
  add_noise(kPlace, 1, MORTISE_BF16, bf16.data(), 0, 0, 64);
  add_noise(kPlace, 1, MORTISE_F16, f16.data(), 0, 0, 64);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(bf16[i], mortise_bf16_from_float(1 + unit[i]));
    EXPECT_EQ(f16[i], mortise_f16_from_float(1 + unit[i]));
  }
}

}  // namespace
