#include "kernels/adamw_8bit/adamw_8bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/normal.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

AdamWStep step_of(int t, double multiplier = 1) {
  return {1e-2, 0.1, 0.9, 0.999, 1e-8, adamw_correction(0.9, t), adamw_correction(0.999, t), multiplier};
}

// A parameter in fp32 with 8-bit means.
struct State {
  std::vector<float> p, m_scale, v_scale;
  std::vector<uint8_t> m, v;
  explicit State(size_t n) : p(normal(n, 7)), m_scale((n + 255) / 256), v_scale(m_scale), m(n, 127), v(n) {}
  AdamW8BitArrays arrays(const void* g, uint32_t grad = MORTISE_F32) {
    return {MORTISE_F32, grad, p.data(), m.data(), v.data(), m_scale.data(), v_scale.data(), g, nullptr};
  }
  void update(const AdamWStep& step, const std::vector<float>& g) {
    adamw_8bit_update(step, arrays(g.data()), 0, static_cast<int64_t>(p.size()));
  }
  float mean(size_t i) const { return dynamic_map(true)[m[i]] * m_scale[i / 256]; }
  float square(size_t i) const { return dynamic_map(false)[v[i]] * v_scale[i / 256]; }
  bool operator==(const State&) const = default;
};

// bitsandbytes, kernels.cu, quantize_2D: a binary search whose last step compares with a midpoint.
uint8_t quantize_2d(const std::array<float, 256>& map, float x) {
  size_t pivot = 127, upper = 255, lower = 0;
  for (size_t i = 64; i > 0; i /= 2) {
    if (x > map[pivot]) lower = pivot, pivot += i;
    else upper = pivot, pivot -= i;
  }
  if (x > map[pivot]) return static_cast<uint8_t>(x > (map[upper] + map[pivot]) * 0.5f ? upper : pivot);
  return static_cast<uint8_t>(x < (map[lower] + map[pivot]) * 0.5f ? lower : pivot);
}

uint8_t signed_index(float m, float factor) {
  uint8_t index = quantize_2d(dynamic_map(true), m * factor);
  if (std::signbit(dynamic_map(true)[index]) != std::signbit(m)) index += m > 0 ? 1 : -1;
  return index;
}

// The same file, kOptimizerStatic8bit2StateBlockwise: one block, an element after the other.
void bitsandbytes(State& s, const std::vector<float>& g, const AdamWStep& k, size_t block) {
  const size_t first = block * 256, last = std::min(first + 256, s.p.size());
  const auto beta1 = static_cast<float>(k.beta1), rest1 = static_cast<float>(1 - k.beta1);
  const auto beta2 = static_cast<float>(k.beta2), rest2 = static_cast<float>(1 - k.beta2);
  const double correction2 = std::sqrt(k.correction2);
  const auto step_size = static_cast<float>(-k.lr * correction2 / k.correction1);
  const auto eps = static_cast<float>(correction2 * k.eps), decay = static_cast<float>(1 - k.lr * k.weight_decay);
  std::vector<float> m(256), v(256);
  for (size_t i = first; i < last; ++i) {
    if (!std::isfinite(g[i])) continue;
    m[i - first] = s.mean(i) * beta1 + rest1 * g[i];
    v[i - first] = s.square(i) * beta2 + rest2 * g[i] * g[i];
    s.p[i] = (s.p[i] + step_size * (m[i - first] / (std::sqrt(v[i - first]) + eps))) * decay;
  }
  float m_max = 0, v_max = 0;
  for (const float x : m) m_max = std::max(m_max, std::fabs(x));
  for (const float x : v) v_max = std::max(v_max, x);
  s.m_scale[block] = m_max;
  s.v_scale[block] = v_max;
  for (size_t i = first; i < last; ++i) {
    s.m[i] = m_max > 0 ? signed_index(m[i - first], 1 / m_max) : 127;
    s.v[i] = v_max > 0 ? quantize_2d(dynamic_map(false), v[i - first] * (1 / v_max)) : 0;
  }
}

uint64_t fnv(const std::array<float, 256>& map) {
  uint64_t hash = 14695981039346656037u;
  for (const float x : map)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((std::bit_cast<uint32_t>(x) >> shift) & 255)) * 1099511628211u;
  return hash;
}

// The hashes are those of the 1,024 bytes of torch.tensor(data) at the end of create_dynamic_map, run with torch 2.11
// under ATEN_CPU_CAPABILITY=avx2 and =avx512.
TEST(DynamicMap, HasTheBitsOfBitsandbytes) {
  const auto &with = dynamic_map(true), &without = dynamic_map(false);
  EXPECT_EQ(fnv(with), 0xd677f22a96665bc4u);
  EXPECT_EQ(fnv(without), 0x43811b16730a873eu);
  for (const auto& [index, value] : {std::pair{0, -0.99296874f}, {126, -5.5e-7f}, {128, 5.5e-7f}, {254, 0.99296874f}})
    EXPECT_FLOAT_EQ(with[static_cast<size_t>(index)], value);
  for (const auto& [index, value] : {std::pair{1, 3.25e-7f}, {2, 7.75e-7f}, {254, 0.9964844f}})
    EXPECT_FLOAT_EQ(without[static_cast<size_t>(index)], value);
}

TEST(DynamicMap, AscendsFromItsZeroToOneAndIsItsOwnMirrorBelow) {
  for (const bool is_signed : {false, true}) {
    const auto& map = dynamic_map(is_signed);
    for (size_t i = 1; i < 256; ++i) EXPECT_LT(map[i - 1], map[i]);
    EXPECT_EQ(map[is_signed ? 127 : 0], 0);
    EXPECT_EQ(map[255], 1);
  }
  for (size_t k = 1; k <= 127; ++k) EXPECT_EQ(dynamic_map(true)[127 - k], -dynamic_map(true)[127 + k]);
}

// Bit for bit what the source does one element after the other, over blocks of very different size and a short one.
TEST(AdamW8BitKernel, HasTheBitsOfBitsandbytesAlgorithm) {
  const size_t n = 4 * 256 + 77;
  State ours(n), theirs(n);
  for (int t = 1; t <= 50; ++t) {
    std::vector<float> g = normal(n, 100 + static_cast<unsigned>(t));
    for (size_t i = 0; i < n; ++i) g[i] *= std::pow(10.0f, static_cast<float>(i / 256) * 3 - static_cast<float>(i % 7));
    if (t % 5 == 0) g[300] = kNaN, g[n - 1] = kInf;
    ours.update(step_of(t), g);
    for (size_t block = 0; block < 5; ++block) bitsandbytes(theirs, g, step_of(t), block);
    ASSERT_TRUE(ours == theirs) << t;
  }
}

// The first of the block makes the scale 1; with decays of 0 the others come to their indices as they are. From two
// floats below each border between two values of a map to two above, and the border itself, where ties are.
TEST(AdamW8BitKernel, TakesTheNearestValueAtEveryBorder) {
  const AdamWStep plain{0, 0, 0, 0, 1e-8, 1, 1, 1};
  for (const bool is_signed : {false, true}) {
    const auto& map = dynamic_map(is_signed);
    for (size_t i = 0; i + 1 < 256; ++i) {
      const float border = (map[i] + map[i + 1]) * 0.5f;
      std::vector<float> g = {1, is_signed ? border : std::sqrt(border)};
      for (float up = g[1], down = g[1]; g.size() < 8;) {
        g.push_back(up = std::nextafter(up, kInf));
        g.push_back(down = std::nextafter(down, -kInf));
      }
      State s(g.size());
      s.update(plain, g);
      for (size_t e = 0; e < g.size(); ++e) {
        if (is_signed) ASSERT_EQ(s.m[e], signed_index(g[e], 1)) << g[e];
        else ASSERT_EQ(s.v[e], quantize_2d(map, g[e] * g[e])) << g[e];
      }
    }
  }
}

TEST(AdamW8BitKernel, NeverLosesTheSignOfANegativeMean) {
  State s(3);
  s.update({0, 0, 0, 0, 1e-8, 1, 1, 1}, {1, -1e-12f, 1e-12f});
  EXPECT_EQ(s.m, (std::vector<uint8_t>{255, 126, 127}));
}

// Means of n numbers lie within half of the widest distance of a map, 0.0141 and 0.0070, of those without rounding; in
// the first step both are those of the gradient alone, and p does not see their rounding at all.
TEST(AdamW8BitKernel, KeepsMeansWithinHalfOfADistanceOfItsMap) {
  const size_t n = 1000;
  State s(n);
  const std::vector<float> g = normal(n, 8), before = s.p;
  s.update(step_of(1), g);
  for (size_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(g[i]), scale_m = static_cast<double>(s.m_scale[i / 256]);
    ASSERT_NEAR(static_cast<double>(s.mean(i)), 0.1 * x, 0.0141 / 2 * scale_m);
    ASSERT_NEAR(static_cast<double>(s.square(i)), 0.001 * x * x, 0.0071 / 2 * static_cast<double>(s.v_scale[i / 256]));
    const double updated = (static_cast<double>(before[i]) - 1e-2 * x / (std::fabs(x) + 1e-8)) * (1 - 1e-3);
    ASSERT_NEAR(static_cast<double>(s.p[i]), updated, 8 * 0x1p-24 * (1 + std::fabs(updated)));
  }
}

// With fp32 means only the roundings of fp32 are left: twenty steps of a few of them, of numbers below 4.
TEST(AdamW8BitKernel, WithFP32MeansFollowsTheFormula) {
  const size_t n = 517;
  std::vector<float> p = normal(n, 7), m(n), v(n);
  std::vector<double> rp(p.begin(), p.end()), rm(n), rv(n);
  for (int t = 1; t <= 20; ++t) {
    const std::vector<float> g = normal(n, 100 + static_cast<unsigned>(t));
    const AdamWStep k = step_of(t);
    adamw_32bit_update(k, {.p = p.data(), .g = g.data()}, {m.data(), v.data()}, 0, static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(g[i]);
      rm[i] = 0.9 * rm[i] + 0.1 * x;
      rv[i] = 0.999 * rv[i] + 0.001 * x * x;
      rp[i] -= k.lr * rm[i] / k.correction1 / (std::sqrt(rv[i] / k.correction2) + 1e-8);
      rp[i] *= 1 - k.lr * k.weight_decay;
    }
  }
  for (size_t i = 0; i < n; ++i)
    ASSERT_NEAR(static_cast<double>(p[i]), rp[i], 100.0 * static_cast<double>(std::numeric_limits<float>::epsilon()));
}

// Also where only the square overflows; neighbours in the block are updated as if it were not there.
TEST(AdamW8BitKernel, ClearsTheMeansOfAnElementThatIsNotFiniteAndLeavesItsWeight) {
  State s(300), without(300);
  std::vector<float> g = normal(300, 8);
  g[3] = g[4] = g[5] = g[299] = 0.5f;
  s.update(step_of(1), g);
  without = s;
  const std::vector<float> before = s.p;
  g[3] = kNaN, g[4] = -kInf, g[5] = 1e30f, g[299] = kInf;
  s.update(step_of(2), g);
  g[3] = g[4] = g[5] = g[299] = 0;
  without.update(step_of(2), g);
  for (const size_t i : {3, 4, 5, 299}) {
    EXPECT_EQ(s.m[i], 127);
    EXPECT_EQ(s.v[i], 0);
    EXPECT_EQ(s.p[i], before[i]);
    without.m[i] = 127, without.v[i] = 0, without.p[i] = before[i];
  }
  EXPECT_TRUE(s == without);
}

TEST(AdamW8BitKernel, WithFP32MeansKeepsANaNAsAdamWDoes) {
  float p = 1, m = 0, v = 0;
  const float g = kNaN;
  adamw_32bit_update(step_of(1), {.p = &p, .g = &g}, {&m, &v}, 0, 1);
  for (const float x : {p, m, v}) EXPECT_TRUE(std::isnan(x));
}

// The square of 1e-25 is no float, and 1 / 1e-40 is none either.
TEST(AdamW8BitKernel, ABlockOfZerosOrOfNumbersThatAreNotNormalHasTheIndicesOfZero) {
  for (const float tiny : {0.0f, -0.0f, 1e-40f, 1e-25f}) {
    State s(5);
    s.update({1e-2, 0, 0.9, 0.999, 1e-8, 1, 1, 1}, std::vector<float>(5, tiny));
    EXPECT_EQ(s.v, std::vector<uint8_t>(5, 0)) << tiny;
    EXPECT_EQ(s.m, std::vector<uint8_t>(5, tiny == 1e-25f ? 255 : 127)) << tiny;
    for (const float x : s.p) EXPECT_TRUE(std::isfinite(x));
  }
}

// As a checkpoint that somebody else wrote may have it; under a sanitizer, nothing is read outside of a table.
TEST(AdamW8BitKernel, ScalesThatAreNotFiniteLeadNowhere) {
  for (const float scale : {kInf, kNaN, -1.0f}) {
    State s(300);
    std::fill(s.m.begin(), s.m.end(), uint8_t{200});
    std::fill(s.v.begin(), s.v.end(), uint8_t{200});
    s.m_scale[0] = s.v_scale[1] = scale;
    s.update(step_of(1), normal(300, 8));
    s.update(step_of(2), normal(300, 9));
    EXPECT_TRUE(std::isfinite(s.v_scale[0]));
  }
}

TEST(AdamW8BitKernel, GivesTheSameBitsHoweverTheRangeIsCutAtBlocks) {
  const std::vector<float> g = normal(1300, 8);
  State whole(1300), pieces(1300);
  for (int t = 1; t <= 3; ++t) {
    whole.update(step_of(t), g);
    for (const auto& [b, e] : {std::pair{1024, 1300}, {0, 256}, {256, 1024}})
      adamw_8bit_update(step_of(t), pieces.arrays(g.data()), b, e);
  }
  EXPECT_TRUE(whole == pieces);
}

TEST(AdamW8BitKernel, LeavesElementsOutsideTheRangeAlone) {
  const std::vector<float> g(768, 1);
  State s(768);
  const State before = s;
  adamw_8bit_update(step_of(1), s.arrays(g.data()), 256, 512);
  for (size_t i = 0; i < 768; ++i) {
    const bool inside = i / 256 == 1;
    EXPECT_EQ(s.p[i] != before.p[i], inside);
    EXPECT_EQ(s.m[i] != before.m[i] && s.v[i] != before.v[i], inside);
  }
  EXPECT_EQ(s.m_scale, (std::vector<float>{0, 0.1f, 0}));
  adamw_8bit_update(step_of(1), {}, 0, 0);
  adamw_32bit_update(step_of(1), {}, {}, 0, 0);
}

TEST(AdamW8BitKernel, ReadsGradientsOfAnyFloatDtypeThroughTheMultiplier) {
  const auto after = [](uint32_t dtype, double scale) {
    const size_t n = 600, size = mortise_dtype_of(dtype)->bytes;
    std::vector<uint8_t> g(n * size);
    for (size_t i = 0; i < n; ++i) mortise_element_set(dtype, &g[i * size], scale * static_cast<double>(i % 101) / 64);
    State s(n);
    adamw_8bit_update(step_of(1, 1 / scale), s.arrays(g.data(), dtype), 0, static_cast<int64_t>(n));
    return s;
  };
  const State expected = after(MORTISE_F32, 1);
  for (const uint32_t dtype : {MORTISE_F64, MORTISE_BF16, MORTISE_F16}) EXPECT_TRUE(after(dtype, 1024) == expected);
}

TEST(AdamW8BitKernel, WritesTheBF16CopyInTheSamePass) {
  const std::vector<float> g = normal(300, 8);
  State s(300);
  std::vector<uint16_t> copy(300);
  AdamW8BitArrays a = s.arrays(g.data());
  a.copy = copy.data();
  adamw_8bit_update(step_of(1), a, 0, 300);
  for (size_t i = 0; i < 300; ++i) ASSERT_EQ(copy[i], mortise_bf16_from_float(s.p[i])) << i;
}

// Their updates are rounded once; what is kept of them is what fp32 weights of the same values would keep.
TEST(AdamW8BitKernel, UpdatesWeightsInHalfPrecision) {
  const std::vector<float> g = normal(300, 8);
  for (const uint32_t dtype : {MORTISE_BF16, MORTISE_F16}) {
    State wide(300);
    std::vector<uint16_t> p(300);
    for (size_t i = 0; i < 300; ++i) {
      mortise_element_set(dtype, &p[i], static_cast<double>(wide.p[i]));
      wide.p[i] = static_cast<float>(mortise_element_get(dtype, &p[i]));
    }
    State half = wide;
    AdamW8BitArrays a = half.arrays(g.data());
    a.master = dtype;
    a.p = p.data();
    adamw_8bit_update(step_of(1), a, 0, 300);
    wide.update(step_of(1), g);
    EXPECT_EQ(half.m, wide.m);
    for (size_t i = 0; i < 300; ++i) {
      uint16_t expected = 0;
      mortise_element_set(dtype, &expected, static_cast<double>(wide.p[i]));
      ASSERT_EQ(p[i], expected);
    }
  }
}

}  // namespace
}  // namespace mortise::kernels
