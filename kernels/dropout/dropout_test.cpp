// Dropout against the definition in mortise/philox.h, element by element.
#include "kernels/dropout/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace mortise::kernels {
namespace {

constexpr mortise_philox kPlace = {{0x01234567u, 0x89ABCDEFu}, 11, 1200, 3};

bool keeps(const mortise_philox& place, double p, int64_t e) {
  uint16_t bits[8];
  mortise_philox_block(&place, static_cast<uint64_t>(e / 8), bits);
  return bits[e % 8] >= mortise_dropout_threshold(p);
}

float from_bf16(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }
uint16_t to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

// Values that are not round in any of the dtypes.
std::vector<float> numbers(int64_t n, float shift) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 0.7f + shift) * 3.f;
  return x;
}

// Lengths and beginnings around the eight elements of a block and the 256 of a tile.
TEST(Dropout, EqualsTheDefinitionBitForBitAtEveryLengthAndBeginning) {
  const int64_t n = 1100;
  const auto x = numbers(n, 0.f), residual = numbers(n, 1.f);
  for (const double p : {0.1, 0.5, 0.999}) {
    const auto scale = static_cast<float>(mortise_dropout_scale(p));
    for (const int64_t begin : {0, 1, 7, 8, 13, 250, 256, 257})
      for (const int64_t end : {258, 263, 264, 512, 513, 1031, 1100}) {
        std::vector<float> y(n, -7.f), sum(n, -7.f);
        ASSERT_TRUE(dropout(kPlace, p, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), begin, end));
        ASSERT_TRUE(dropout(kPlace, p, MORTISE_F32, x.data(), residual.data(), MORTISE_F32, sum.data(), begin, end));
        for (int64_t e = 0; e < n; ++e) {
          const auto i = static_cast<size_t>(e);
          const bool inside = begin <= e && e < end;
          const float kept = x[i] * (keeps(kPlace, p, e) ? scale : 0.f);
          ASSERT_EQ(y[i], inside ? kept : -7.f) << "element " << e << " of [" << begin << ", " << end << ")";
          ASSERT_EQ(sum[i], inside ? residual[i] + kept : -7.f)
              << "element " << e << " of [" << begin << ", " << end << ")";
        }
      }
  }
}

// Elements are 32-bit numbers of blocks no more: tiles before, over and behind that boundary.
TEST(Dropout, RepeatsNoBitsInATensorOfMoreThan2To35Elements) {
  constexpr int64_t kWrap = int64_t{8} << 32, kAround = 1024;
  const std::vector<float> x(2 * kAround, 1.f);
  std::vector<float> y(2 * kAround);
  const auto element_0 = [&](const float* of_first, int64_t first) {  // of a tensor of which only a piece is there
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(of_first) -
                                   static_cast<uintptr_t>(first) * sizeof(float));
  };
  const int64_t begin = kWrap - kAround;
  ASSERT_TRUE(dropout(kPlace, 0.5, MORTISE_F32, element_0(x.data(), begin), nullptr, MORTISE_F32,
                      element_0(y.data(), begin), begin + 8, kWrap + kAround));
  int as_at_the_beginning = 0;
  for (int64_t i = 8; i < 2 * kAround; ++i) {
    const bool kept = y[static_cast<size_t>(i)] != 0.f;
    ASSERT_EQ(kept, keeps(kPlace, 0.5, begin + i)) << i;
    if (i >= kAround) as_at_the_beginning += kept == keeps(kPlace, 0.5, i - kAround);
  }
  EXPECT_LT(as_at_the_beginning, kAround * 6 / 10);  // half of them by chance; 16 is the standard deviation
}

TEST(Dropout, KeepsAnElementWhoseBitsAreTheThreshold) {
  uint16_t bits[8];
  mortise_philox_block(&kPlace, 0, bits);
  const std::vector<float> x(8, 1.f);
  for (size_t i = 0; i < x.size(); ++i) {
    const double p = bits[i] / 65536.0;
    std::vector<float> y(8);
    ASSERT_TRUE(dropout(kPlace, p, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 8));
    EXPECT_EQ(y[i], static_cast<float>(mortise_dropout_scale(p))) << i;
  }
}

TEST(Dropout, GivesTheSameBitsHoweverItIsCut) {
  const int64_t n = 4099;
  const auto x = numbers(n, 0.f);
  std::vector<float> whole(n), pieces(n);
  dropout(kPlace, 0.3, MORTISE_F32, x.data(), nullptr, MORTISE_F32, whole.data(), 0, n);
  for (int64_t begin = 0, step = 1; begin < n; begin += step, step = step * 3 % 1009)
    dropout(kPlace, 0.3, MORTISE_F32, x.data(), nullptr, MORTISE_F32, pieces.data(), begin, std::min(n, begin + step));
  EXPECT_EQ(0, std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)));
}

TEST(Dropout, WorksInPlace) {
  const int64_t n = 777;
  const auto x = numbers(n, 0.f);
  std::vector<float> apart(n), in_place = x;
  dropout(kPlace, 0.3, MORTISE_F32, x.data(), nullptr, MORTISE_F32, apart.data(), 0, n);
  dropout(kPlace, 0.3, MORTISE_F32, in_place.data(), nullptr, MORTISE_F32, in_place.data(), 0, n);
  EXPECT_EQ(apart, in_place);
}

TEST(Dropout, ComputesInDouble) {
  const int64_t n = 333;
  std::vector<double> x(n), residual(n), y(n);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<double>(i)), residual[i] = std::cos(static_cast<double>(i));
  ASSERT_TRUE(dropout(kPlace, 0.1, MORTISE_F64, x.data(), residual.data(), MORTISE_F64, y.data(), 5, n));
  for (size_t i = 5; i < x.size(); ++i)
    ASSERT_EQ(y[i],
              residual[i] + x[i] * (keeps(kPlace, 0.1, static_cast<int64_t>(i)) ? mortise_dropout_scale(0.1) : 0.0))
        << i;
}

TEST(Dropout, RoundsBf16OnceToTheNearest) {
  const int64_t n = 601;
  const auto scale = static_cast<float>(mortise_dropout_scale(0.1));
  const auto x32 = numbers(n, 0.f), r32 = numbers(n, 1.f);
  std::vector<uint16_t> x(n), r(n), y(n), sum(n), narrow(n);
  std::vector<float> wide(n);
  for (size_t i = 0; i < x.size(); ++i) x[i] = to_bf16(x32[i]), r[i] = to_bf16(r32[i]);
  ASSERT_TRUE(dropout(kPlace, 0.1, MORTISE_BF16, x.data(), nullptr, MORTISE_BF16, y.data(), 0, n));
  ASSERT_TRUE(dropout(kPlace, 0.1, MORTISE_BF16, x.data(), r.data(), MORTISE_BF16, sum.data(), 0, n));
  ASSERT_TRUE(dropout(kPlace, 0.1, MORTISE_BF16, x.data(), r32.data(), MORTISE_F32, wide.data(), 0, n));
  ASSERT_TRUE(dropout(kPlace, 0.1, MORTISE_F32, x32.data(), nullptr, MORTISE_BF16, narrow.data(), 0, n));
  for (size_t i = 0; i < x.size(); ++i) {
    const float factor = keeps(kPlace, 0.1, static_cast<int64_t>(i)) ? scale : 0.f;
    ASSERT_EQ(y[i], to_bf16(from_bf16(x[i]) * factor)) << i;
    ASSERT_EQ(sum[i], to_bf16(from_bf16(r[i]) + from_bf16(x[i]) * factor)) << i;
    ASSERT_EQ(wide[i], r32[i] + from_bf16(x[i]) * factor) << i;
    ASSERT_EQ(narrow[i], to_bf16(x32[i] * factor)) << i;
  }
}

TEST(Dropout, LetsNothingThatIsNotANumberVanish) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(64, nan), y(64);
  std::vector<uint16_t> z(64);
  dropout(kPlace, 0.5, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 64);
  dropout(kPlace, 0.5, MORTISE_F32, x.data(), nullptr, MORTISE_BF16, z.data(), 0, 64);
  for (size_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isnan(y[i]) && std::isnan(from_bf16(z[i]))) << i;
}

// Four standard deviations of a binomial over a million elements; sites, steps, micro-batches and keys are all
// different streams.
TEST(Dropout, KeepsTheRightShareAndTheMeanInEveryStream) {
  const int64_t n = 1 << 20;
  const std::vector<float> x(n, 1.f);
  std::vector<float> first(n), y(n);
  for (const double p : {0.1, 0.5}) {
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(n));
    dropout(kPlace, p, MORTISE_F32, x.data(), nullptr, MORTISE_F32, first.data(), 0, n);
    mortise_philox others[5] = {kPlace, kPlace, kPlace, kPlace, kPlace};
    others[0].site++, others[1].step++, others[2].micro++, others[3].key[0]++, others[4].key[1]++;
    for (const mortise_philox& place : others) {
      dropout(place, p, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, n);
      int64_t dropped = 0, both = 0;
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        dropped += y[i] == 0.f;
        both += y[i] == 0.f && first[i] == 0.f;
        sum += y[i];
      }
      EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(n), p, 4 * deviation + 1.0 / 65536);
      EXPECT_NEAR(sum / static_cast<double>(n), 1.0, 4 * deviation / (1 - p) + 1.0 / 65536);
      EXPECT_NEAR(static_cast<double>(both) / static_cast<double>(n), p * p,
                  4 * std::sqrt(p * p * (1 - p * p) / static_cast<double>(n)) + 1.0 / 32768);
    }
  }
}

TEST(Dropout, DropsEverythingAtOneAndNothingAtZero) {
  const auto x = numbers(300, 0.f);
  std::vector<float> y(300, -7.f);
  dropout(kPlace, 1.0, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 300);
  for (const float f : y) ASSERT_EQ(f, 0.f);
  dropout(kPlace, 0.0, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 300);
  EXPECT_EQ(x, y);
}

TEST(Dropout, RefusesADtypeThatItDoesNotKnow) {
  uint16_t half[8] = {};
  EXPECT_FALSE(dropout(kPlace, 0.1, MORTISE_F16, half, nullptr, MORTISE_F16, half, 0, 8));
}

}  // namespace
}  // namespace mortise::kernels
