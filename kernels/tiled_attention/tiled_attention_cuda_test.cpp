// Tiled attention and its gradients against the same by hand in double, on a device that the CPU stands in for.
#include "kernels/tiled_attention/tiled_attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/bf16/bf16.h"
#include "mortise/half.h"

namespace mortise::kernels {
namespace {

struct Shape {
  int batch = 1, heads = 1, kv_heads = 1, queries = 64, keys = 64, width = 64;
  bool causal = false;
  enum { kNothing, kKeys, kFull, kBlocks } added = kNothing;
  double dropout = 0;
};

// An array [B, H, T, D] inside a row of `all` heads, as the packed result of a linear layer has it.
struct Heads {
  Heads(const Shape& s, int n, int positions, uint32_t type)
      : heads(n), rows(positions), width(s.width), dtype(type),
        bits(static_cast<size_t>(s.batch * positions * n * s.width)) {}
  size_t at(int b, int h, int t, int d) const {
    return ((size_t(b) * size_t(rows) + size_t(t)) * size_t(heads) + size_t(h)) * size_t(width) + size_t(d);
  }
  double number(int b, int h, int t, int d) const {
    const uint16_t x = bits[at(b, h, t, d)];
    return dtype == MORTISE_BF16 ? mortise_bf16_to_float(x) : mortise_f16_to_float(x);
  }
  void fill(double shift) {
    for (size_t i = 0; i < bits.size(); ++i) {
      const auto x = static_cast<float>(std::sin(static_cast<double>(i) * 0.7371 + shift) * 1.5);
      bits[i] = dtype == MORTISE_BF16 ? mortise_bf16_from_float(x) : mortise_f16_from_float(x);
    }
  }
  HeadsView view() { return {bits.data(), int64_t{rows} * heads * width, width, int64_t{heads} * width}; }
  int heads, rows, width;
  uint32_t dtype;
  std::vector<uint16_t> bits;
};

using Numbers = std::vector<double>;  // of [B, H, T, D] in this order

class Case {
 public:
  Case(const Shape& shape, uint32_t dtype)
      : s(shape), q(s, s.heads, s.queries, dtype), k(s, s.kv_heads, s.keys, dtype), v(s, s.kv_heads, s.keys, dtype),
        y(q), dy(q), dq(q), dk(k), dv(v), rows(2 * size_t(s.batch * s.heads * s.queries)), dots(rows.size() / 2) {
    q.fill(0), k.fill(1), v.fill(2), dy.fill(3);
    if (s.added == Shape::kKeys)  // the last third of the keys is hidden
      for (int i = 0; i < s.keys; ++i) added.push_back(i >= s.keys * 2 / 3 ? std::numeric_limits<float>::lowest() : 0);
    if (s.added == Shape::kBlocks)  // a row sees the keys of its own 64, so that whole tiles are hidden
      for (int i = 0; i < s.batch * s.queries * s.keys; ++i)
        added.push_back(i / s.keys % s.queries / 64 == i % s.keys / 64 ? 0 : -std::numeric_limits<float>::infinity());
    if (s.added == Shape::kFull)
      for (int i = 0; i < s.batch * s.heads * s.queries * s.keys; ++i) added.push_back(std::sin(static_cast<float>(i)));
  }

  void run() {
    TiledAttention a = {};
    a.dtype = q.dtype;
    a.batch = s.batch, a.heads = s.heads, a.kv_heads = s.kv_heads;
    a.queries = s.queries, a.keys = s.keys, a.width = s.width;
    a.causal = s.causal, a.scale = static_cast<float>(scale());
    a.q = q.view(), a.k = k.view(), a.v = v.view();
    a.added = added.empty() ? nullptr : added.data();
    if (s.added == Shape::kKeys) a.added_strides[3] = 1;
    if (s.added == Shape::kFull || s.added == Shape::kBlocks)
      a.added_strides[0] = int64_t{added_heads()} * s.queries * s.keys, a.added_strides[2] = s.keys,
      a.added_strides[3] = 1;
    if (s.added == Shape::kFull) a.added_strides[1] = int64_t{s.queries} * s.keys;
    a.dropout = s.dropout;
    a.place = {kPlace, &step};
    ASSERT_EQ(tiled_attention_cuda(a, y.view(), rows.data(), nullptr), nullptr);
    ASSERT_EQ(tiled_attention_backward_cuda(a, y.view(), rows.data(), dy.view(), dq.view(), dk.view(), dv.view(),
                                            dots.data(), nullptr),
              nullptr);
  }

  // Everything again by hand; y, dq, dk and dv in double.
  struct Wanted {
    Numbers y, dq, dk, dv;
  };
  Wanted wanted() const {
    const size_t n = size_t(s.batch) * size_t(s.heads) * size_t(s.queries) * size_t(s.width);
    const size_t m = size_t(s.batch) * size_t(s.kv_heads) * size_t(s.keys) * size_t(s.width);
    Wanted w = {Numbers(n), Numbers(n), Numbers(m), Numbers(m)};
    for (int b = 0; b < s.batch; ++b)
      for (int h = 0; h < s.heads; ++h)
        for (int t = 0; t < s.queries; ++t) row(w, b, h, t);
    return w;
  }

  static Numbers numbers(const Heads& x, int batch) {
    Numbers all;
    for (int b = 0; b < batch; ++b)
      for (int h = 0; h < x.heads; ++h)
        for (int t = 0; t < x.rows; ++t)
          for (int d = 0; d < x.width; ++d) all.push_back(x.number(b, h, t, d));
    return all;
  }

  Shape s;
  Heads q, k, v, y, dy, dq, dk, dv;
  std::vector<float> added, rows, dots;

 private:
  static constexpr mortise_philox kPlace = {{0x01234567u, 0x89ABCDEFu}, 11, 0xDEADu, 3};
  static constexpr int64_t step = 1200;

  double scale() const { return 1 / std::sqrt(s.width); }
  int added_heads() const { return s.added == Shape::kFull ? s.heads : 1; }
  double added_at(int b, int h, int t, int i) const {
    if (s.added == Shape::kNothing) return 0;
    const int head = b * added_heads() + h % added_heads();
    const int at = s.added == Shape::kKeys ? i : (head * s.queries + t) * s.keys + i;
    return double{added[size_t(at)]};
  }
  // 0 if it is dropped.
  double kept(int b, int h, int t, int i) const {
    if (s.dropout == 0) return 1;
    mortise_philox place = kPlace;
    place.step = static_cast<uint32_t>(step);
    const uint64_t number =
        ((uint64_t(b) * uint64_t(s.heads) + uint64_t(h)) * uint64_t(s.queries) + uint64_t(t)) * uint64_t(s.keys) +
        uint64_t(i);
    uint16_t bits[8];
    mortise_philox_block(&place, number / 8, bits);
    return bits[number % 8] >= mortise_dropout_threshold(s.dropout) ? mortise_dropout_scale(s.dropout) : 0;
  }
  void row(Wanted& w, int b, int h, int t) const {
    const int g = h / (s.heads / s.kv_heads), n = s.causal ? t + s.keys - s.queries + 1 : s.keys;
    const auto index = [&](int heads, int head, int positions, int r) {
      return ((size_t(b) * size_t(heads) + size_t(head)) * size_t(positions) + size_t(r)) * size_t(s.width);
    };
    const auto size = size_t(n);
    Numbers p(size), d(size);
    double most = -std::numeric_limits<double>::infinity(), sum = 0, dot = 0;
    for (int i = 0; i < n; ++i) {
      double x = 0;
      for (int e = 0; e < s.width; ++e) x += q.number(b, h, t, e) * k.number(b, g, i, e);
      p[size_t(i)] = x * scale() + added_at(b, h, t, i);
      most = std::max(most, p[size_t(i)]);
    }
    for (double& x : p) sum += x = std::exp(x - most);
    for (int i = 0; i < n; ++i) {
      const double stays = kept(b, h, t, i), prob = p[size_t(i)] /= sum;
      for (int e = 0; e < s.width; ++e) {
        w.y[index(s.heads, h, s.queries, t) + size_t(e)] += prob * stays * v.number(b, g, i, e);
        w.dv[index(s.kv_heads, g, s.keys, i) + size_t(e)] += prob * stays * dy.number(b, h, t, e);
        d[size_t(i)] += stays * dy.number(b, h, t, e) * v.number(b, g, i, e);
      }
      dot += prob * d[size_t(i)];
    }
    for (int i = 0; i < n; ++i) {
      const double ds = p[size_t(i)] * (d[size_t(i)] - dot) * scale();
      for (int e = 0; e < s.width; ++e) {
        w.dq[index(s.heads, h, s.queries, t) + size_t(e)] += ds * k.number(b, g, i, e);
        w.dk[index(s.kv_heads, g, s.keys, i) + size_t(e)] += ds * q.number(b, h, t, e);
      }
    }
  }
};

// The largest difference, in parts of the largest number.
double difference(const Numbers& a, const Numbers& b) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return most / largest;
}

// Probabilities and gradients of scores are rounded to the type before their products, and so is each result: three
// roundings of half a unit (2⁻⁹ of BF16, 2⁻¹² of F16), of which those of a sum's terms add up less than in full; and
// y, rounded, is in the gradients of scores. Four units in all.
void expect_near(const Shape& s, uint32_t dtype = MORTISE_BF16) {
  const double bound = dtype == MORTISE_BF16 ? 4.0 / 256 : 4.0 / 2048;
  Case c(s, dtype);
  c.run();
  const Case::Wanted w = c.wanted();
  EXPECT_LT(difference(Case::numbers(c.y, s.batch), w.y), bound) << "y";
  EXPECT_LT(difference(Case::numbers(c.dq, s.batch), w.dq), bound) << "dq";
  EXPECT_LT(difference(Case::numbers(c.dk, s.batch), w.dk), bound) << "dk";
  EXPECT_LT(difference(Case::numbers(c.dv, s.batch), w.dv), bound) << "dv";
}

TEST(TiledAttention, OfWholeTiles) { expect_near({.batch = 2, .heads = 2, .queries = 128, .keys = 128}); }
TEST(TiledAttention, OfTilesThatAreNotFull) { expect_near({.heads = 2, .queries = 70, .keys = 75}); }
TEST(TiledAttention, OfTheWidth128) { expect_near({.heads = 2, .queries = 72, .keys = 40, .width = 128}); }
TEST(TiledAttention, InF16) { expect_near({.heads = 2, .queries = 72, .keys = 72, .dropout = 0.2}, MORTISE_F16); }
TEST(TiledAttention, OfWidth128InF16) {
  expect_near({.queries = 40, .keys = 72, .width = 128, .causal = false, .dropout = 0.2}, MORTISE_F16);
}
TEST(TiledAttention, Causal) { expect_near({.heads = 2, .queries = 130, .keys = 130, .causal = true}); }
TEST(TiledAttention, CausalWithFewerQueriesThanKeys) {
  expect_near({.heads = 2, .queries = 70, .keys = 150, .causal = true, .dropout = 0.1});
}
TEST(TiledAttention, WithHiddenKeys) {
  expect_near({.batch = 2, .heads = 2, .queries = 64, .keys = 96, .added = Shape::kKeys});
}
TEST(TiledAttention, WithANumberForEachPairOfEachHead) {
  expect_near({.batch = 2, .heads = 2, .queries = 40, .keys = 72, .added = Shape::kFull});
}
TEST(TiledAttention, WithWholeTilesHiddenByAnInfinity) {
  expect_near({.queries = 192, .keys = 192, .added = Shape::kBlocks, .dropout = 0.2});
}
TEST(TiledAttention, DropsWhatDropoutDrops) {
  expect_near({.batch = 2, .heads = 2, .queries = 72, .keys = 136, .dropout = 0.5});
}
TEST(TiledAttention, DropsTheSameWhereRowsBeginInsideABlockOfBits) {
  expect_near({.heads = 2, .queries = 40, .keys = 77, .dropout = 0.5});
}
TEST(TiledAttention, HeadsOfKeysThatServeSeveral) {
  expect_near({.batch = 2, .heads = 4, .kv_heads = 2, .queries = 72, .keys = 72, .causal = true, .dropout = 0.1});
}

TEST(TiledAttention, DroppedWholeItIsZero) {
  Case c({.dropout = 1}, MORTISE_BF16);
  c.run();
  for (const Heads* x : {&c.y, &c.dq, &c.dk, &c.dv})
    for (const double number : Case::numbers(*x, 1)) ASSERT_EQ(number, 0);
}

TEST(TiledAttention, RefusesWhatItHasNoKernelFor) {
  TiledAttention a = {};
  a.dtype = MORTISE_BF16;
  a.width = 32;
  EXPECT_STREQ(tiled_attention_cuda(a, {}, nullptr, nullptr), "it wants heads of the width 64 or 128");
  a.width = 64;
  a.dtype = MORTISE_F32;
  EXPECT_STREQ(tiled_attention_cuda(a, {}, nullptr, nullptr), "it computes in bf16 and fp16");
}

}  // namespace
}  // namespace mortise::kernels
