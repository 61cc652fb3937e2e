// bf16 and fp16 of mortise/half.h, against the compiler's own _Float16 and against arithmetic in double.
#include "mortise/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace {
__extension__ typedef _Float16 Half;

uint16_t bits_of(Half h) { return std::bit_cast<uint16_t>(h); }

// Of two neighbours the nearer to x, or the even one: what rounding is, without shifts.
template <class ToFloat>
uint16_t nearest(double x, ToFloat to_float) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  uint16_t below = 0;  // the largest number that is not above |x|; numbers are in the order of their bits
  for (int bit = 14; bit >= 0; --bit) {
    const auto next = static_cast<uint16_t>(below | 1 << bit);
    if (static_cast<double>(to_float(next)) <= std::fabs(x)) below = next;
  }
  if (std::isinf(to_float(below))) return sign | below;
  const auto above = static_cast<uint16_t>(below + 1);
  const double low = to_float(below);
  // Infinity counts as the number that would follow.
  const double high =
      std::isinf(to_float(above)) ? 2 * low - static_cast<double>(to_float(below - 1)) : to_float(above);
  const double to_low = std::fabs(x) - low, to_high = high - std::fabs(x);
  if (to_low == to_high) return sign | (below & 1 ? above : below);
  return sign | (to_low < to_high ? below : above);
}

TEST(Half, EveryFloat16BecomesTheFloatThatTheCompilerMakesAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const auto expected = static_cast<float>(std::bit_cast<Half>(h));
    const float x = mortise_f16_to_float(h);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x)) << i;
      ASSERT_EQ(mortise_f16_from_float(x) & 0x7FFF, 0x7E00) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(expected)) << i;
    ASSERT_EQ(mortise_f16_from_float(x), h) << i;
  }
}

TEST(Half, EveryBFloat16IsAFloatAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float x = mortise_bf16_to_float(h);
    ASSERT_EQ(std::bit_cast<uint32_t>(x), i << 16);
    ASSERT_EQ(mortise_bf16_from_float(x), std::isnan(x) ? 0x7FC0 : h) << i;
  }
}

// 2,557 is coprime with 2^32 and leaves every exponent, both signs, 1.7 million floats; and the bits round each tie.
TEST(Half, FloatsRoundAsTheCompilersDo) {
  const auto compare = [](uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    if (std::isnan(x)) return;
    ASSERT_EQ(mortise_f16_from_float(x), bits_of(static_cast<Half>(x))) << x;
    ASSERT_EQ(mortise_bf16_from_float(x), nearest(x, mortise_bf16_to_float)) << x;
  };
  for (uint64_t i = 0; i < uint64_t{1} << 32; i += 2557) compare(static_cast<uint32_t>(i));
  for (uint32_t i = 0; i < 0x10000; ++i)
    for (const uint32_t around : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u})
      compare(i << 16 | around);
}

TEST(Half, DoublesAreRoundedOnce) {
  // Just above the middle of two halves, by less than a float can say: through a float they would fall on the tie.
  EXPECT_EQ(mortise_f16_from_double(1 + 0x1p-11 + 0x1p-40), 0x3C01);
  EXPECT_EQ(mortise_f16_from_float(static_cast<float>(1 + 0x1p-11 + 0x1p-40)), 0x3C00);
  EXPECT_EQ(mortise_bf16_from_double(1 + 0x1p-8 + 0x1p-40), 0x3F81);
  EXPECT_EQ(mortise_bf16_from_double(-1 - 0x1p-8 - 0x1p-40), 0xBF81);
  uint64_t seed = 1;
  for (int i = 0; i < 200'000; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    // Exponents of halves and a little beyond; mantissas that end in a tie and a bit.
    const uint64_t exponent = 1023 - 30 + (seed >> 33) % 50, top = seed & 0x800FFC0000000000u;
    for (const uint64_t low :
         {uint64_t{0}, uint64_t{0x20000000000}, uint64_t{0x20000000001}, uint64_t{0x1FFFFFFFFFF}}) {
      const auto x = std::bit_cast<double>(top | exponent << 52 | low);
      ASSERT_EQ(mortise_f16_from_double(x), bits_of(static_cast<Half>(x))) << x;
      ASSERT_EQ(mortise_bf16_from_double(x), nearest(x, mortise_bf16_to_float)) << x;
    }
  }
}

TEST(Half, TheEndsAreInfinityZeroAndNotANumber) {
  constexpr double kHuge = std::numeric_limits<double>::max(), kTiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(mortise_f16_from_double(kHuge), 0x7C00);
  EXPECT_EQ(mortise_bf16_from_double(-kHuge), 0xFF80);
  EXPECT_EQ(mortise_f16_from_double(65519.999), 0x7BFF);
  EXPECT_EQ(mortise_f16_from_double(65520), 0x7C00);
  EXPECT_EQ(mortise_f16_from_double(kTiny), 0x0000);
  EXPECT_EQ(mortise_bf16_from_double(-kTiny), 0x8000);
  EXPECT_EQ(mortise_bf16_from_float(INFINITY), 0x7F80);
  EXPECT_EQ(mortise_bf16_from_float(NAN), 0x7FC0);
  EXPECT_EQ(mortise_bf16_from_double(NAN), 0x7FC0);
  EXPECT_EQ(mortise_f16_from_double(-INFINITY), 0xFC00);
  EXPECT_TRUE(std::isnan(mortise_f16_to_float(mortise_f16_from_double(NAN))));
}
}  // namespace
