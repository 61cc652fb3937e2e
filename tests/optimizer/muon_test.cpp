// optimizer.muon over ATen's operators: its formula in fp64, the singular values of its updates, and parts.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "mortise/testing/fake_slice.hpp"
#include "tests/optimizer/boxed.hpp"

namespace {

using namespace mortise::testing;
constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;

at::Tensor normal(uint64_t seed, int64_t rows, int64_t columns) {
  return at::randn({rows, columns}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}
std::vector<float> elements(const at::Tensor& t) {
  const at::Tensor c = t.contiguous();
  return {c.const_data_ptr<float>(), c.const_data_ptr<float>() + c.numel()};
}
double distance(const at::Tensor& is, const at::Tensor& wanted) {
  return ((is - wanted).norm() / wanted.norm()).item().toDouble();
}

struct Muon : testing::Test {
  Muon() {
    define_operators(host, {"to.dtype", "mul.Tensor", "mul.Scalar", "add.Tensor", "add.Scalar", "sub.Tensor",
                            "div.Tensor", "lerp.Scalar", "where.self", "select.int", "view", "narrow", "t", "cat", "mm",
                            "addmm", "linalg_vector_norm", "clamp_min", "eye.out"});
    host.set("momentum", 0.95).set("nesterov", true).set("ns_coefficients", std::vector<double>{kA, kB, kC});
    host.set("ns_steps", 5).set("ns_dtype", "fp32").set("eps", 1e-7).set("adjust_lr_fn", "original");
    host.lr = {1, 0.02};
    host.weight_decay = {0, 0.1};
  }
  // A matrix of the gradient's shape, out × in; its weights are 0 unless given.
  FakeSlice& matrix(const Plugin& plugin, const at::Tensor& grad, const std::vector<int64_t>& parts = {},
                    uint32_t part_dim = 0, const at::Tensor& weights = {}) {
    mortise_param* const p = host.add_param("w" + std::to_string(slices.size()), "matrix", grad.sizes().vec());
    if (!parts.empty()) host.pack(p, part_dim, parts);
    return slices.emplace_back(host, plugin, p, elements(weights.defined() ? weights : at::zeros_like(grad)),
                               elements(grad));
  }
  at::Tensor weights(const FakeSlice& s) {
    return shared(s.slice.master).view({s.slice.info->sizes[0], s.slice.info->sizes[1]}).clone();
  }
  // What a first step takes from a matrix of zeros at a rate of 1.
  at::Tensor change(const at::Tensor& grad, const std::vector<int64_t>& parts = {}, uint32_t part_dim = 0) {
    Plugin plugin(host, MORTISE_PLUGINS "/optimizer.muon.so");
    FakeSlice& slice = matrix(plugin, grad, parts, part_dim);
    EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
    const at::Tensor lost = weights(slice).neg();
    slices.clear();
    return lost;
  }
  FakeHost host;
  std::deque<FakeSlice> slices;
};

// torch.optim.Muon for one matrix in fp64.
struct Reference {
  at::Tensor p, buffer;
  bool nesterov = true, matches_adamw = false;
  int steps = 5;
  void step(const at::Tensor& g, double lr, double decay) {
    buffer = buffer.lerp(g, 1 - 0.95);
    at::Tensor x = nesterov ? g.lerp(buffer, 0.95) : buffer;
    x = x / x.norm();
    for (int i = 0; i < steps; ++i) {
      const at::Tensor gram = x.mm(x.t());
      x = kA * x + (kB * gram + kC * gram.mm(gram)).mm(x);
    }
    const auto rows = static_cast<double>(p.size(0)), columns = static_cast<double>(p.size(1));
    const double factor =
        matches_adamw ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
    p = p * (1 - lr * decay) - lr * factor * x;
  }
};

struct Shape {
  int64_t rows, columns;
};
constexpr Shape kShapes[] = {{24, 24}, {40, 24}, {24, 40}, {16, 64}, {64, 16}, {1, 9}, {9, 1}};

// In fp32 every product of the iteration is off by about 2^-24 of the root of its length, 8 at most, and what one
// iteration is off the next makes up to a = 3.4 times larger where singular values are small: 3.4^5 · 8 · 2^-24 = 2e-4
// at worst. Measured: 3e-6 after five steps.
TEST_F(Muon, FollowsItsFormulaInEveryShape) {
  for (const Shape shape : kShapes)
    for (const bool nesterov : {true, false})
      for (const char* adjust : {"original", "match_rms_adamw"}) {
        host.set("nesterov", nesterov).set("adjust_lr_fn", adjust);
        Plugin plugin(host, MORTISE_PLUGINS "/optimizer.muon.so");
        const at::Tensor start = normal(1, shape.rows, shape.columns);
        FakeSlice& slice = matrix(plugin, start, {}, 0, start);
        slice.slice.group = 1;
        Reference expected{start.to(at::kDouble), at::zeros_like(start, at::kDouble), nesterov, adjust[0] == 'm'};
        for (uint64_t t = 2; t < 7; ++t) {
          const at::Tensor g = normal(t, shape.rows, shape.columns);
          shared(slice.slice.grad).copy_(g.view({-1}));
          ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
          expected.step(g.to(at::kDouble), 0.02, 0.1);
        }
        EXPECT_LE(distance(weights(slice), expected.p), 2e-4) << shape.rows << " " << shape.columns << adjust;
        slices.clear();
      }
}

// Twelve iterations of a wide matrix whose singular values fall from 1 to 1e-4: eigenvalues of the Gram matrix that
// rounding made negative would have grown without an end.
TEST_F(Muon, TheWayOfTheGramMatrixHoldsForManyIterations) {
  host.set("ns_steps", 12).set("nesterov", false);
  at::Tensor g = normal(1, 16, 64);
  for (int64_t row = 0; row < 16; ++row) g[row] *= std::pow(10, -4.0 * static_cast<double>(row) / 15);
  Reference expected{at::zeros_like(g, at::kDouble), at::zeros_like(g, at::kDouble), false, false, 12};
  expected.step(g.to(at::kDouble), 1, 0);
  EXPECT_LE(distance(change(g), -expected.p), 1e-3);
}

// Five iterations take a singular value that is at least 0.01 of the norm to between 0.6818 and 1.1344 (the polynomial
// applied five times to 200,000 numbers); bf16 adds the rounding of some ten products, 2^-9 each. The square matrix has
// a diagonal, without which its least singular value is next to 0.
TEST_F(Muon, MakesAllSingularValuesOfAnUpdateNearOne) {
  for (const char* dtype : {"bf16", "fp32"})
    for (const Shape shape : kShapes) {
      host.set("ns_dtype", dtype);
      at::Tensor g = normal(3, shape.rows, shape.columns);
      if (shape.rows == shape.columns) g = g + 12 * at::eye(shape.rows);
      const double rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
      const at::Tensor values = at::linalg_svdvals(change(g)) / std::sqrt(std::max(1.0, rows / columns));
      const double rounding = dtype[0] == 'b' ? 10 * 0x1p-9 : 1e-4;
      EXPECT_GE(values.min().item().toDouble(), 0.6818 - rounding) << dtype << rows << " " << columns;
      EXPECT_LE(values.max().item().toDouble(), 1.1344 + rounding) << dtype << rows << " " << columns;
    }
}

TEST_F(Muon, EachPartOfAPackIsOrthogonalisedByItself) {
  for (const char* dtype : {"bf16", "fp32"}) {
    host.set("ns_dtype", dtype);
    const at::Tensor q = normal(1, 8, 8), k = 1e-3 * normal(2, 8, 8), v = normal(3, 8, 20);
    const at::Tensor columns = at::cat({q, k, v}, 1), rows = at::cat({q, k, v.t()}, 0);
    const std::vector<int64_t> parts = {8, 8, 20};
    const at::Tensor apart = change(columns, parts, 1);
    EXPECT_TRUE(apart.equal(at::cat({change(q), change(k), change(v)}, 1)));
    EXPECT_TRUE(change(rows, parts, 0).equal(at::cat({change(q), change(k), change(v.t())}, 0)));
    EXPECT_GE(distance(change(columns), apart), 0.3) << "in a pack the small keys hardly move";
  }
}

// GPT-2's Conv1D holds its matrices the other way round: the update is that of the matrix with a row an output.
TEST_F(Muon, AMatrixThatIsStoredInByOutIsUpdatedAsOneOutByIn) {
  Plugin plugin(host, MORTISE_PLUGINS "/optimizer.muon.so");
  const at::Tensor g = normal(1, 10, 24);
  FakeSlice& out_in = matrix(plugin, g.t().contiguous(), {8, 16}, 0);
  mortise_param* const p = host.add_param("conv", "matrix", {10, 24});
  host.name_dims(p, {"in", "out"});
  host.pack(p, 1, {8, 16});
  FakeSlice& in_out = slices.emplace_back(host, plugin, p, std::vector<float>(240), elements(g));
  ASSERT_EQ(update(host, plugin, {&out_in, &in_out}), MORTISE_OK) << host.error();
  EXPECT_TRUE(weights(in_out).equal(weights(out_in).t()));
}

TEST_F(Muon, ChangesNothingWhenTheVerdictIsSkip) {
  Plugin plugin(host, MORTISE_PLUGINS "/optimizer.muon.so");
  const at::Tensor start = normal(1, 4, 6);
  FakeSlice& slice = matrix(plugin, start, {}, 0, start);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK) << host.error();
  const at::Tensor before = weights(slice);
  const auto momentum = host.values<float>(slice.slice.states[0]);
  shared(slice.slice.grad).fill_(NAN);
  put(host.ledger().verdict, 0.0);
  ASSERT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
  EXPECT_TRUE(weights(slice).equal(before));
  EXPECT_EQ(host.values<float>(slice.slice.states[0]), momentum);
}

TEST_F(Muon, ReadsGradientsThroughTheMultiplier) {
  Plugin plugin(host, MORTISE_PLUGINS "/optimizer.muon.so");
  const at::Tensor g = normal(1, 4, 6);
  FakeSlice &plain = matrix(plugin, g), &scaled = matrix(plugin, g * 1024);
  ASSERT_EQ(update(host, plugin, {&plain}), MORTISE_OK) << host.error();
  put(host.ledger().multiplier, 1.0 / 1024);
  ASSERT_EQ(update(host, plugin, {&scaled}), MORTISE_OK);
  EXPECT_TRUE(weights(scaled).equal(weights(plain)));
  EXPECT_EQ(host.values<float>(scaled.slice.states[0]), host.values<float>(plain.slice.states[0]));
}

// A gradient of zeros has no direction; its norm is taken as eps.
TEST_F(Muon, AGradientOfZerosMovesNothing) {
  const at::Tensor none = at::zeros_like(normal(1, 4, 12));
  EXPECT_TRUE(change(none).equal(none));
}

// Weights in bf16 are rounded once a step, of what was computed in fp32; those in fp64 keep their bits.
TEST_F(Muon, UpdatesWeightsInBF16AndFP64) {
  Plugin plugin(host, MORTISE_PLUGINS "/optimizer.muon.so");
  const at::Tensor g = normal(1, 4, 6);
  FakeSlice& fp32 = matrix(plugin, g, {}, 0, at::ones_like(g));
  const auto add = [&](auto one) -> FakeSlice& {
    mortise_param* const p = host.add_param("w", "matrix", {4, 6});
    return slices.emplace_back(host, plugin, p, std::vector(24, one), elements(g));
  };
  FakeSlice &bf16 = add(uint16_t{0x3F80}), &fp64 = add(1 + 0x1p-40);
  for (FakeSlice* s : {&fp32, &bf16, &fp64}) s->slice.group = 1;
  ASSERT_EQ(update(host, plugin, {&fp32, &bf16, &fp64}), MORTISE_OK) << host.error();
  EXPECT_TRUE(weights(bf16).equal(weights(fp32).to(at::kBFloat16)));
  EXPECT_FALSE(weights(bf16).equal(at::ones_like(weights(bf16))));
  const at::Tensor apart = weights(fp64) - weights(fp32);
  EXPECT_LE(apart.abs().max().item().toDouble(), 0x1p-22);
  EXPECT_GT(apart.abs().min().item().toDouble(), 0);
}

}  // namespace
