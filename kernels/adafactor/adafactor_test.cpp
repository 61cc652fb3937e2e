#include "kernels/adafactor/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "kernels/normal.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

// What a step computes with; the rate and the decay are those of the manifest, the multiplier is 1.
struct Numbers : AdafactorSettings, AdafactorStep {};
Numbers step_of(int t) {
  return {{.beta1 = 0.9,
           .eps = 1e-30,
           .least_scale = 1e-3,
           .clip_threshold = 1.0,
           .decay_rate = -0.8,
           .scale_parameter = false,
           .relative_step = false,
           .warmup_init = false},
          {.lr = 1e-2, .weight_decay = 0.1, .beta2 = 1 - std::pow(t, -0.8), .multiplier = 1}};
}

// The paper's algorithms 4 and 5 in fp64, as nested loops.
struct Reference {
  size_t matrices, rows, columns;
  std::vector<double> p, row, column, m;
  bool factored = true, moment = false;
  Reference(size_t b, size_t r, size_t c, const std::vector<float>& start)
      : matrices(b), rows(r), columns(c), p(start.begin(), start.end()), row(b * r), column(b * c), m(b * r * c),
        v_(b * r * c) {}
  size_t at(size_t b, size_t r, size_t c) const { return (b * rows + r) * columns + c; }

  static double rms(const std::vector<double>& x) {
    double sum = 0;
    for (const double one : x) sum += one * one;
    return std::sqrt(sum / static_cast<double>(x.size()));
  }

  void step(const std::vector<float>& g, const Numbers& k) {
    std::vector<double> u(p.size());
    for (size_t b = 0; b < matrices; ++b) factored ? matrix(b, g, k, u) : vector(g, k, u);
    const double rate = k.lr * (k.scale_parameter ? std::max(k.least_scale, rms(p)) : 1);
    const double divisor = std::max(1.0, rms(u) / k.clip_threshold);
    for (size_t i = 0; i < p.size(); ++i) {
      double change = u[i] / divisor * rate;
      if (moment) change = m[i] = k.beta1 * m[i] + (1 - k.beta1) * change;
      p[i] = p[i] - k.weight_decay * rate * p[i] - change;
    }
  }

 private:
  void matrix(size_t b, const std::vector<float>& g, const Numbers& k, std::vector<double>& u) {
    const auto square = [&](size_t r, size_t c) {
      const double x = static_cast<double>(g[at(b, r, c)]) * k.multiplier;
      return x * x + k.eps;
    };
    double mean = 0;
    for (size_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += square(r, c);
      double& state = row[b * rows + r];
      state = k.beta2 * state + (1 - k.beta2) * sum / static_cast<double>(columns);
      mean += state / static_cast<double>(rows);
    }
    for (size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (size_t r = 0; r < rows; ++r) sum += square(r, c);
      double& state = column[b * columns + c];
      state = k.beta2 * state + (1 - k.beta2) * sum / static_cast<double>(rows);
    }
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c)
        u[at(b, r, c)] = static_cast<double>(g[at(b, r, c)]) * k.multiplier /
                         std::sqrt(row[b * rows + r] / mean * column[b * columns + c]);
  }
  void vector(const std::vector<float>& g, const Numbers& k, std::vector<double>& u) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double x = static_cast<double>(g[i]) * k.multiplier;
      v_[i] = k.beta2 * v_[i] + (1 - k.beta2) * (x * x + k.eps);
      u[i] = x / std::sqrt(v_[i]);
    }
  }
  std::vector<double> v_;
};

// All stages, with items in another order and on as many threads.
void run(Adafactor a, int threads = 1) {
  const auto all = [&](int64_t n, auto stage) {
    if (threads == 1)
      for (int64_t i = 0; i < n; ++i) (a.*stage)(i);
    std::vector<std::thread> team;
    for (int t = 0; t < threads && threads > 1; ++t)
      team.emplace_back([&, t] {
        for (int64_t i = n - 1 - t; i >= 0; i -= threads) (a.*stage)(i);
      });
    for (auto& one : team) one.join();
  };
  all(a.tiles(), &Adafactor::sum_squares);
  all(a.bands(), &Adafactor::average);
  a.prepare();
  all(a.tiles(), &Adafactor::measure);
  a.clip();
  all(a.tiles(), &Adafactor::update);
}

struct State {
  std::vector<float> p, row, column, v, m;
  State(size_t b, size_t r, size_t c, std::vector<float> start)
      : p(std::move(start)), row(b * r), column(b * c), v(b * r * c), m(b * r * c) {}
  AdafactorArrays arrays(const std::vector<float>& g, bool factored = true, bool moment = false) {
    return {.master = MORTISE_F32,
            .grad = MORTISE_F32,
            .p = p.data(),
            .g = g.data(),
            .row = factored ? row.data() : nullptr,
            .column = factored ? column.data() : nullptr,
            .v = factored ? nullptr : v.data(),
            .m = moment ? m.data() : nullptr};
  }
};

// Weights are below 4: half a unit is 2^-23 there, and a step rounds them twice; an update, of at most some times the
// rate of 1e-2, is rounded some ten times at 2^-24, which is less. Ten steps: 20 · 2^-23.
constexpr double kBound = 20 * 0x1p-23;

struct Shape {
  size_t matrices, rows, columns;
};
class Shapes : public testing::TestWithParam<Shape> {};

TEST_P(Shapes, FollowThePaper) {
  const auto [b, r, c] = GetParam();
  const std::vector<float> start = normal(b * r * c, 1);
  for (const bool moment : {false, true})
    for (const bool scaled : {false, true}) {
      State s(b, r, c, start);
      Reference expected(b, r, c, start);
      expected.moment = moment;
      for (int t = 1; t <= 10; ++t) {
        const std::vector<float> g = normal(b * r * c, 10 + static_cast<unsigned>(t));
        Numbers k = step_of(t);
        k.scale_parameter = scaled;
        k.multiplier = 0.5;
        run({k, k, s.arrays(g, true, moment), static_cast<int64_t>(b * r * c), static_cast<int64_t>(r),
             static_cast<int64_t>(c)});
        expected.step(g, k);
      }
      for (size_t i = 0; i < s.p.size(); ++i) ASSERT_NEAR(static_cast<double>(s.p[i]), expected.p[i], kBound) << i;
      for (size_t i = 0; i < s.row.size(); ++i)  // a rounding of 2^-24 a step, of what decays
        ASSERT_NEAR(static_cast<double>(s.row[i]), expected.row[i], 10 * 0x1p-24 * expected.row[i]) << i;
      for (size_t i = 0; i < s.column.size(); ++i)
        ASSERT_NEAR(static_cast<double>(s.column[i]), expected.column[i], 10 * 0x1p-24 * expected.column[i]) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Odd, Shapes,
                         testing::Values(Shape{1, 1, 1}, Shape{1, 3, 5}, Shape{2, 131, 1027}, Shape{3, 64, 8},
                                         Shape{1, 200, 1}, Shape{1, 1, 2500}));

TEST(AdafactorKernel, KeepsTheWholeSecondMomentOfAVector) {
  const std::vector<float> start = normal(2500, 1);
  State s(1, 1, 2500, start);
  Reference expected(1, 1, 2500, start);
  expected.factored = false;
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> g = normal(2500, 10 + static_cast<unsigned>(t));
    run({step_of(t), step_of(t), s.arrays(g, false), 2500, 1, 2500});
    expected.step(g, step_of(t));
  }
  for (size_t i = 0; i < s.p.size(); ++i) ASSERT_NEAR(static_cast<double>(s.p[i]), expected.p[i], kBound) << i;
}

TEST(AdafactorKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> start = normal(2 * 131 * 1027, 1), g = normal(start.size(), 2);
  Numbers k = step_of(2);
  k.scale_parameter = true;
  State one(2, 131, 1027, start), more(2, 131, 1027, start);
  run({k, k, one.arrays(g, true, true), 2 * 131 * 1027, 131, 1027}, 1);
  run({k, k, more.arrays(g, true, true), 2 * 131 * 1027, 131, 1027}, 3);
  EXPECT_EQ(one.p, more.p);
  EXPECT_EQ(one.row, more.row);
  EXPECT_EQ(one.column, more.column);
  EXPECT_EQ(one.m, more.m);
}

// Of the first step U is about the gradient's sign; the threshold makes it half as large.
TEST(AdafactorKernel, LimitsTheSizeOfAnUpdate) {
  const std::vector<float> g = {3, -3, 3, -3};
  Numbers k = step_of(1);
  k.weight_decay = 0;
  k.clip_threshold = 0.5;
  State s(1, 2, 2, std::vector<float>(4, 1));
  run({k, k, s.arrays(g), 4, 2, 2});
  EXPECT_NEAR(static_cast<double>(s.p[0]), 1 - 0.5e-2, 1e-7);
  EXPECT_NEAR(static_cast<double>(s.p[1]), 1 + 0.5e-2, 1e-7);
}

TEST(AdafactorKernel, ARowWithoutAGradientStaysFinite) {
  State s(1, 2, 2, {1, 1, 1, 1});
  Numbers k = step_of(1);
  k.weight_decay = 0;
  const std::vector<float> g = {1, 1, 0, 0};
  run({k, k, s.arrays(g), 4, 2, 2});
  EXPECT_LT(s.p[0], 1);
  EXPECT_EQ(s.p[2], 1);
}

// bf16 and fp16 weights and gradients: those of fp32, rounded once a step.
TEST(AdafactorKernel, UpdatesWeightsInHalfPrecision) {
  for (const uint32_t dtype : {MORTISE_BF16, MORTISE_F16}) {
    const size_t n = 3 * 70;
    const std::vector<float> start = normal(n, 1), gradient = normal(n, 2);
    std::vector<uint16_t> p(n), g(n);
    State wide(1, 3, 70, start), half(1, 3, 70, start);
    std::vector<float> same(n);
    for (size_t i = 0; i < n; ++i) {
      mortise_element_set(dtype, &p[i], static_cast<double>(start[i]));
      mortise_element_set(dtype, &g[i], static_cast<double>(gradient[i]));
      wide.p[i] = static_cast<float>(mortise_element_get(dtype, &p[i]));
      same[i] = static_cast<float>(mortise_element_get(dtype, &g[i]));
    }
    AdafactorArrays a = half.arrays(start);
    a.master = a.grad = dtype;
    a.p = p.data();
    a.g = g.data();
    run({step_of(1), step_of(1), wide.arrays(same), 210, 3, 70});
    run({step_of(1), step_of(1), a, 210, 3, 70});
    for (size_t i = 0; i < n; ++i) {
      uint16_t expected = 0;
      mortise_element_set(dtype, &expected, static_cast<double>(wide.p[i]));
      ASSERT_EQ(p[i], expected) << i;
    }
  }
}

// Of several tiles: each element has its own gradient, which any dtype holds.
TEST(AdafactorKernel, ReadsGradientsOfAnyFloatDtype) {
  const auto after = [](uint32_t dtype) {
    const size_t n = 2 * 1300, size = mortise_dtype_of(dtype)->bytes;
    std::vector<uint8_t> g(n * size);
    for (size_t i = 0; i < n; ++i) mortise_element_set(dtype, &g[i * size], static_cast<double>(i % 101) / 64);
    State s(1, 2, 1300, std::vector<float>(n, 1));
    AdafactorArrays a = s.arrays({});
    a.grad = dtype;
    a.g = g.data();
    run({step_of(1), step_of(1), a, 2600, 2, 1300});
    return std::vector{s.p, s.row, s.column};
  };
  for (const uint32_t dtype : {MORTISE_F64, MORTISE_BF16, MORTISE_F16}) EXPECT_EQ(after(dtype), after(MORTISE_F32));
}

TEST(AdafactorKernel, WritesTheCopyRoundedToTheNearestEven) {
  const std::vector<float> g = normal(2 * 1030, 2);
  State s(1, 2, 1030, normal(g.size(), 1));
  std::vector<uint16_t> copy(g.size());
  AdafactorArrays a = s.arrays(g);
  a.copy = copy.data();
  run({step_of(1), step_of(1), a, 2060, 2, 1030});
  for (size_t i = 0; i < g.size(); ++i) ASSERT_EQ(copy[i], mortise_bf16_from_float(s.p[i])) << i;
}

TEST(AdafactorKernel, TakesAMatrixOfNoElements) {
  State s(1, 0, 4, {});
  const std::vector<float> g;
  Adafactor a(step_of(1), step_of(1), s.arrays(g), 0, 0, 4);
  EXPECT_EQ(a.tiles(), 0);
  EXPECT_EQ(a.bands(), 0);
}

}  // namespace
}  // namespace mortise::kernels
