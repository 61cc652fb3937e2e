// Rows of probabilities and their gradients against the same by hand in double, on a device that the CPU stands in for.
#include "kernels/probabilities/probabilities_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dropout/dropout.h"
#include "mortise/abi.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

constexpr mortise_philox kPlace = {{0x01234567u, 0x89ABCDEFu}, 11, 0xDEADu, 3};
constexpr int64_t kStep = 1200;

struct Shape {
  int batch = 1, heads = 2, queries = 5, keys = 64;
  bool causal = false;
  enum { kNothing, kKeys, kFull } added = kNothing;
  double dropout = 0.3;
};

class Case {
 public:
  explicit Case(const Shape& shape, size_t behind = 0)
      : s(shape), rows(int64_t{s.batch} * s.heads * s.queries), offset(behind), scores(filled(0)), grads(filled(1)) {
    if (s.added == Shape::kKeys)  // the last third of the keys is hidden
      for (int i = 0; i < s.batch * s.keys; ++i)
        added.push_back(i % s.keys >= s.keys * 2 / 3 ? std::numeric_limits<float>::lowest() : 0);
    if (s.added == Shape::kFull)
      for (int i = 0; i < s.batch * s.queries * s.keys; ++i) added.push_back(std::sin(static_cast<float>(i)));
  }

  Probabilities job() const {
    Probabilities a = {};
    a.heads = s.heads, a.queries = s.queries, a.keys = s.keys;
    a.causal = s.causal, a.scale = 0.25f;
    a.added = added.empty() ? nullptr : added.data();
    if (s.added == Shape::kKeys) a.added_strides[0] = s.keys, a.added_strides[3] = 1;
    if (s.added == Shape::kFull)
      a.added_strides[0] = int64_t{s.queries} * s.keys, a.added_strides[2] = s.keys, a.added_strides[3] = 1;
    a.dropout = s.dropout;
    a.place = {kPlace, &kStep};
    return a;
  }

  // What meets v, and backward's two; `at_once` rows a call.
  struct Numbers {
    std::vector<float> met, again, grads;
  };
  Numbers run(int64_t at_once) const {
    Numbers n = {scores, scores, grads};
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t now = std::min(at_once, rows - first);
      const size_t at = offset + size_t(first) * size_t(s.keys);
      EXPECT_EQ(probabilities_cuda(job(), first, now, &n.met[at], nullptr), nullptr);
      EXPECT_EQ(probabilities_backward_cuda(job(), first, now, &n.again[at], &n.grads[at], nullptr), nullptr);
    }
    return n;
  }

  // In double: probabilities, what meets v, gradients of the products.
  struct Wanted {
    std::vector<double> p, met, grads;
  };
  Wanted wanted() const {
    Wanted w;
    const std::vector<float> kept = kept_of_dropout();
    for (int64_t row = 0; row < rows; ++row) {
      const int b = static_cast<int>(row / s.queries / s.heads), t = static_cast<int>(row % s.queries);
      const int n = s.causal ? t + s.keys - s.queries + 1 : s.keys;
      const auto at = [&](int i) { return size_t(row) * size_t(s.keys) + size_t(i); };
      std::vector<double> x(size_t(s.keys), -std::numeric_limits<double>::infinity());
      for (int i = 0; i < n; ++i) x[size_t(i)] = double{scores[offset + at(i)]} * 0.25 + added_at(b, t, i);
      const double most = *std::max_element(x.begin(), x.end());
      double sum = 0, dot = 0;
      for (double& e : x) sum += e = std::exp(e - most);
      for (int i = 0; i < s.keys; ++i) dot += x[size_t(i)] / sum * double{kept[at(i)]} * double{grads[offset + at(i)]};
      for (int i = 0; i < s.keys; ++i) {
        const double p = x[size_t(i)] / sum, stays = double{kept[at(i)]};
        w.p.push_back(p);
        w.met.push_back(p * stays);
        w.grads.push_back(p * (stays * double{grads[offset + at(i)]} - dot) * 0.25);
      }
    }
    return w;
  }

  // What the CPU's dropout makes of ones.
  std::vector<float> kept_of_dropout() const {
    std::vector<float> ones(size_t(rows * s.keys), 1.f);
    mortise_philox place = kPlace;
    place.step = static_cast<uint32_t>(kStep);
    if (s.dropout > 0)
      dropout(place, s.dropout, MORTISE_F32, ones.data(), nullptr, MORTISE_F32, ones.data(), 0, rows * s.keys);
    return ones;
  }

  Shape s;
  int64_t rows;
  size_t offset;
  std::vector<float> scores, grads, added;

 private:
  std::vector<float> filled(double shift) const {
    std::vector<float> x(offset + size_t(rows * s.keys));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.7371 + shift) * 8);
    return x;
  }
  double added_at(int b, int t, int i) const {
    if (s.added == Shape::kNothing) return 0;
    return double{added[size_t(s.added == Shape::kKeys ? b * s.keys + i : (b * s.queries + t) * s.keys + i)]};
  }
};

// In units of half a step of fp32, of a probability: scores lie below 4 and are rounded three times (12), expf is off
// by two steps (4), the row's sum by 32 additions of a lane's, 5 of a warp's and 31 of a block's (68), its inverse and
// two products by one each (3). A gradient is a difference of which either part is that near, and a sum more.
constexpr double kHalf = 1.0 / (1 << 24), kOfProbability = 90 * kHalf, kOfGradient = 3 * kOfProbability;

void expect_near(const Shape& s) {
  const Case c(s);
  const Case::Numbers n = c.run(c.rows);
  const Case::Wanted w = c.wanted();
  double largest = 0;
  for (const double g : w.grads) largest = std::max(largest, std::abs(g));
  ASSERT_TRUE(largest > 0 || s.keys == 1);
  for (size_t i = 0; i < w.met.size(); ++i) {
    ASSERT_LE(std::abs(double{n.met[i]} - w.met[i]), kOfProbability * w.met[i]) << i;
    ASSERT_EQ(n.again[i], n.met[i]) << i;
    ASSERT_LE(std::abs(double{n.grads[i]} - w.grads[i]), kOfGradient * largest) << i;
  }
}

TEST(ProbabilitiesCuda, OfRowsThatEndAnywhere) {
  for (const int keys : {1, 7, 8, 9, 64, 77, 255, 256, 257, 264, 512, 513, 1000, 1024})
    for (const double p : {0.0, 0.3}) expect_near({.queries = 1, .keys = keys, .dropout = p});
}
TEST(ProbabilitiesCuda, OfRowsThatABlockShares) {
  for (const int keys : {1025, 2048, 2056, 4096, 4100, 8192}) expect_near({.heads = 1, .queries = 2, .keys = keys});
}
TEST(ProbabilitiesCuda, OfTheLongestRows) {
  for (const int keys : {8193, 16384, 20000, 32768}) expect_near({.heads = 1, .queries = 2, .keys = keys});
}
TEST(ProbabilitiesCuda, Causal) { expect_near({.queries = 70, .keys = 70, .causal = true}); }
TEST(ProbabilitiesCuda, CausalWithFewerQueriesThanKeys) { expect_near({.queries = 9, .keys = 300, .causal = true}); }
TEST(ProbabilitiesCuda, WithHiddenKeys) { expect_near({.batch = 3, .keys = 96, .added = Shape::kKeys}); }
TEST(ProbabilitiesCuda, WithANumberForEachPair) {
  expect_near({.batch = 2, .heads = 3, .queries = 11, .keys = 72, .causal = true, .added = Shape::kFull});
}

TEST(ProbabilitiesCuda, AreTheSameBitsHoweverRowsAreSplit) {
  for (const int keys : {512, 77}) {
    const Case c({.batch = 2, .heads = 3, .queries = 6, .keys = keys, .added = Shape::kFull});
    const Case::Numbers whole = c.run(c.rows);
    for (const int64_t at_once : {1, 5, 12}) {
      const Case::Numbers split = c.run(at_once);
      EXPECT_EQ(split.met, whole.met);
      EXPECT_EQ(split.grads, whole.grads);
    }
  }
}

TEST(ProbabilitiesCuda, AreTheSameBitsAtAnyAddress) {
  const Shape s = {.keys = 264};
  const Case::Numbers aligned = Case(s).run(1 << 20);
  Case c(s, 3);
  const Case at_0(s);
  std::copy(at_0.scores.begin(), at_0.scores.end(), c.scores.begin() + 3);
  std::copy(at_0.grads.begin(), at_0.grads.end(), c.grads.begin() + 3);
  const Case::Numbers behind = c.run(1 << 20);
  EXPECT_TRUE(std::equal(aligned.met.begin(), aligned.met.end(), behind.met.begin() + 3));
  EXPECT_TRUE(std::equal(aligned.grads.begin(), aligned.grads.end(), behind.grads.begin() + 3));
  EXPECT_TRUE(std::equal(c.scores.begin(), c.scores.begin() + 3, behind.met.begin()));  // what is not theirs
}

// A row whose every key is hidden by the lowest number sees all alike, as attention.math has it.
TEST(ProbabilitiesCuda, StayFiniteWhereEveryKeyIsHidden) {
  Case c({.heads = 1, .queries = 1, .keys = 16, .added = Shape::kKeys, .dropout = 0});
  std::fill(c.added.begin(), c.added.end(), std::numeric_limits<float>::lowest());
  for (const float p : c.run(1).met) EXPECT_EQ(p, 1.0f / 16);
}

TEST(ProbabilitiesCuda, DroppedWholeTheyAreZero) {
  const Case::Numbers n = Case({.dropout = 1}).run(1 << 20);
  for (const std::vector<float>* x : {&n.met, &n.again, &n.grads})
    for (const float number : *x) ASSERT_EQ(number, 0);
}

TEST(ProbabilitiesCuda, LetNothingThatIsNotANumberVanish) {
  Case c({.queries = 1, .keys = 40});
  c.scores[5] = std::nanf("");
  const Case::Numbers n = c.run(1 << 20);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(std::isnan(n.met[i]));
    EXPECT_TRUE(std::isnan(n.grads[i]));
    EXPECT_FALSE(std::isnan(n.met[40 + i]));
  }
}

TEST(ProbabilitiesCuda, RefuseLongerRows) {
  const Case c({});
  Probabilities a = c.job();
  a.keys = kMostKeys + 1;
  EXPECT_STREQ(probabilities_cuda(a, 0, 1, nullptr, nullptr), "rows of probabilities have 32,768 keys at most");
  a.keys = 64;
  EXPECT_EQ(probabilities_cuda(a, 0, 0, nullptr, nullptr), nullptr);
}

}  // namespace
}  // namespace mortise::kernels
