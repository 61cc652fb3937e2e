// operators.aten against ATen's own autograd: bit for bit in fp32 and fp64, but for the loss.
#include "tests/operators/bench.hpp"

namespace mortise::testing {
namespace {

class Pairs : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType dtype() const { return GetParam(); }
  Bench bench;
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Pairs, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& it) { return at::toString(it.param); });

at::Tensor activated(const at::Tensor& z, const std::string& name) {
  if (name == "gelu") return at::gelu(z);
  if (name == "gelu_tanh") return at::gelu(z, "tanh");
  if (name == "silu") return at::silu(z);
  if (name == "tanh") return at::tanh(z);
  return name == "relu" ? at::relu(z) : z;
}

TEST_P(Pairs, LinearEqualsAutogradInBothLayoutsWithEveryActivation) {
  for (const bool in_out : {false, true})
    for (const bool bias : {true, false})
      for (const std::string activation : {"none", "gelu", "gelu_tanh", "relu", "silu", "tanh"}) {
        SCOPED_TRACE(activation + (in_out ? " in_out" : " out_in") + (bias ? " bias" : ""));
        Bench b;
        auto* layer = b.layer(dtype(), "linear",
                              {{"in", 24},
                               {"out", 40},
                               {"layout", in_out ? "in_out" : "out_in"},
                               {"bias", bias},
                               {"activation", activation}});
        const at::Tensor x = numbers({3, 7, 24}, dtype(), true), g = numbers({3, 7, 40}, dtype());
        const at::Tensor x0 = leaf(x), w0 = leaf(b.value("it.weight")),
                         b0 = bias ? leaf(b.value("it.bias")) : at::Tensor();
        at::Tensor z0;
        if (!in_out) {
          z0 = at::linear(x0, w0, b0);
        } else {
          const at::Tensor rows = x0.reshape({-1, 24});
          z0 = (bias ? at::addmm(b0, rows, w0) : at::mm(rows, w0)).view({3, 7, 40});
        }
        const at::Tensor y0 = activated(z0, activation);
        y0.backward(g);
        const at::Tensor y = b.call(layer, {x})[0];
        b.backward({y}, {g});
        EXPECT_TRUE(bitwise(y, y0));
        EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
        EXPECT_TRUE(bitwise(b.grad("it.weight"), w0.grad()));
        if (bias) {
          EXPECT_TRUE(bitwise(b.grad("it.bias"), b0.grad()));
        }
      }
}

TEST_P(Pairs, LinearMakesOnlyTheGradientsThatAreWanted) {
  for (const bool x_learns : {true, false})
    for (const bool w_learns : {true, false})
      for (const bool b_learns : {true, false}) {
        if (!x_learns && !w_learns && !b_learns) continue;
        SCOPED_TRACE(::testing::Message() << x_learns << w_learns << b_learns);
        Bench b;
        std::vector<std::string> frozen;
        if (!w_learns) frozen.push_back("it.weight");
        if (!b_learns) frozen.push_back("it.bias");
        auto* layer = b.layer(dtype(), "linear", {{"in", 8}, {"out", 16}, {"activation", "gelu"}}, frozen);
        const at::Tensor x = numbers({5, 8}, dtype(), x_learns), g = numbers({5, 16}, dtype());
        const at::Tensor x0 = leaf(x, x_learns), w0 = leaf(b.value("it.weight"), w_learns),
                         b0 = leaf(b.value("it.bias"), b_learns);
        at::gelu(at::linear(x0, w0, b0)).backward(g);
        b.backward({b.call(layer, {x})[0]}, {g});
        EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
        EXPECT_TRUE(bitwise(b.grad("it.weight"), w0.grad()));
        EXPECT_TRUE(bitwise(b.grad("it.bias"), b0.grad()));
      }
}

TEST_P(Pairs, GradientsOfALayerUsedTwiceAreSummed) {
  auto* layer = bench.layer(dtype(), "linear", {{"in", 12}, {"out", 12}});
  const at::Tensor x = numbers({6, 12}, dtype(), true), g = numbers({6, 12}, dtype());
  const at::Tensor x0 = leaf(x), w0 = bench.learning("it.weight"), b0 = bench.learning("it.bias");
  at::linear(at::linear(x0, w0, b0), w0, b0).backward(g);
  bench.backward({bench.call(layer, {bench.call(layer, {x})[0]})[0]}, {g});
  EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.bias"), b0.grad()));
}

TEST_P(Pairs, LinearTakesAGradientThatIsNotContiguous) {
  auto* layer = bench.layer(dtype(), "linear", {{"in", 6}, {"out", 10}});
  const at::Tensor x = numbers({4, 5, 6}, dtype(), true), g = numbers({5, 4, 10}, dtype()).transpose(0, 1);
  const at::Tensor x0 = leaf(x), w0 = bench.learning("it.weight"), b0 = bench.learning("it.bias");
  at::linear(x0, w0, b0).backward(g.contiguous());
  bench.backward({bench.call(layer, {x})[0]}, {g});
  EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
}

TEST_P(Pairs, NormEqualsAutograd) {
  auto* layer = bench.layer(dtype(), "norm", {{"width", 48}, {"eps", 1e-5}});
  const at::Tensor x = numbers({3, 5, 48}, dtype(), true), g = numbers({3, 5, 48}, dtype());
  const at::Tensor x0 = leaf(x), w0 = bench.learning("it.weight"), b0 = bench.learning("it.bias");
  const at::Tensor y0 = at::layer_norm(x0, {48}, w0, b0, 1e-5);
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {x})[0];
  bench.backward({y}, {g});
  EXPECT_TRUE(bitwise(y, y0));
  EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.bias"), b0.grad()));
}

// The reference multiplies in another order: a few units of the last place.
TEST_P(Pairs, RmsNormIsThatOfAten) {
  auto* layer = bench.layer(dtype(), "norm", {{"width", 48}, {"eps", 1e-5}, {"kind", "rms"}});
  const at::Tensor x = numbers({3, 5, 48}, dtype(), true), g = numbers({3, 5, 48}, dtype());
  const at::Tensor x0 = leaf(x), w0 = bench.learning("it.weight");
  const at::Tensor y0 = at::rms_norm(x0, {48}, w0, 1e-5);
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {x})[0];
  bench.backward({y}, {g});
  const double near = dtype() == at::kFloat ? 1e-6 : 1e-14;
  EXPECT_LT(apart(y, y0), near);
  EXPECT_LT(apart(x.grad(), x0.grad()), near);
  EXPECT_LT(apart(bench.grad("it.weight"), w0.grad()), near);
  EXPECT_EQ(bench.get().declaration().find("it.bias"), nullptr);
}

// Which of the two results got a gradient, and which of the two arguments want one.
TEST_P(Pairs, ResidualNormEqualsAutogradWhicheverGradientsArrive) {
  for (const bool of_y : {true, false})
    for (const bool of_sum : {true, false})
      for (const bool branch_learns : {true, false})
        for (const bool residual_learns : {true, false}) {
          if (!of_y && !of_sum) continue;
          if (!branch_learns && !residual_learns && !of_y) continue;
          SCOPED_TRACE(::testing::Message() << of_y << of_sum << branch_learns << residual_learns);
          Bench b;
          auto* layer = b.layer(dtype(), "residual_norm", {{"width", 32}, {"dropout", 0.0}});
          const at::Tensor branch = numbers({4, 32}, dtype(), branch_learns),
                           residual = numbers({4, 32}, dtype(), residual_learns);
          const at::Tensor branch0 = leaf(branch, branch_learns), residual0 = leaf(residual, residual_learns);
          const at::Tensor w0 = leaf(b.value("it.weight")), b0 = leaf(b.value("it.bias"));
          const at::Tensor sum0 = residual0 + branch0, y0 = at::layer_norm(sum0, {32}, w0, b0, 1e-5);
          const auto out = b.call(layer, {branch, residual}, 2);
          std::vector<at::Tensor> roots, seeds;
          at::Tensor total0;
          if (of_y) {
            const at::Tensor g = numbers({4, 32}, dtype());
            roots.push_back(out[0]), seeds.push_back(g);
            total0 = (y0 * g).sum();
          }
          if (of_sum) {
            const at::Tensor g = numbers({4, 32}, dtype());
            if (!out[1].requires_grad()) continue;
            roots.push_back(out[1]), seeds.push_back(g);
            total0 = total0.defined() ? total0 + (sum0 * g).sum() : (sum0 * g).sum();
          }
          if (total0.requires_grad()) total0.backward();
          b.backward(roots, seeds);
          EXPECT_TRUE(bitwise(out[0], y0));
          EXPECT_TRUE(bitwise(out[1], sum0));
          EXPECT_TRUE(bitwise(branch.grad(), branch0.grad()));
          EXPECT_TRUE(bitwise(residual.grad(), residual0.grad()));
          EXPECT_TRUE(bitwise(b.grad("it.weight"), w0.grad()));
        }
}

// Ones show which bits this place draws.
TEST_P(Pairs, ResidualNormDropsTheBranchInTheForwardAndTheGradient) {
  auto* layer = bench.layer(dtype(), "residual_norm", {{"width", 64}, {"dropout", 0.25}});
  const at::Tensor ones = at::ones({50, 64}, dtype()), zeros = at::zeros({50, 64}, dtype());
  const at::Tensor mask = bench.call(layer, {ones, zeros}, 2)[1].detach();
  EXPECT_NEAR(mask.eq(0).to(at::kFloat).mean().item<float>(), 0.25, 0.03);
  EXPECT_TRUE(at::logical_or(mask.eq(0), mask.eq(mask.max())).all().item<bool>());
  EXPECT_NEAR(mask.max().item<double>(), 1 / 0.75, 1e-4);

  const at::Tensor branch = numbers({50, 64}, dtype(), true), residual = numbers({50, 64}, dtype(), true);
  const at::Tensor g = numbers({50, 64}, dtype()), h = numbers({50, 64}, dtype());
  const at::Tensor branch0 = leaf(branch), residual0 = leaf(residual), w0 = bench.learning("it.weight"),
                   b0 = bench.learning("it.bias");
  const at::Tensor sum0 = residual0 + branch0 * mask, y0 = at::layer_norm(sum0, {64}, w0, b0, 1e-5);
  ((y0 * g).sum() + (sum0 * h).sum()).backward();
  const auto out = bench.call(layer, {branch, residual}, 2);
  bench.backward(out, {g, h});
  EXPECT_TRUE(bitwise(out[0], y0));
  EXPECT_TRUE(bitwise(out[1], sum0));
  EXPECT_TRUE(bitwise(branch.grad(), branch0.grad()));
  EXPECT_TRUE(bitwise(residual.grad(), residual0.grad()));
}

TEST_P(Pairs, DropoutDrawsTheSameBitsInBackwardAndNoneOutsideTraining) {
  auto* layer = bench.layer(dtype(), "dropout", {{"p", 0.1}});
  const at::Tensor x = numbers({40, 33}, dtype(), true), g = numbers({40, 33}, dtype());
  const at::Tensor y = bench.call(layer, {x})[0];
  bench.backward({y}, {g});
  const at::Tensor mask = bench.call(layer, {at::ones({40, 33}, dtype())})[0].detach();
  EXPECT_TRUE(bitwise(y, x * mask));
  EXPECT_TRUE(bitwise(x.grad(), g * mask));
  const at::Tensor kept = bench.call(layer, {x}, 1, {.mode = MORTISE_EVAL, .flags = 0})[0];
  EXPECT_TRUE(bitwise(kept, x));
  EXPECT_NE(kept.const_data_ptr(), x.const_data_ptr());
}

TEST_P(Pairs, EmbeddingEqualsAutograd) {
  auto* layer = bench.layer(dtype(), "embedding", {{"vocab", 30}, {"width", 16}});
  const at::Tensor ids = at::randint(30, {4, 9}, at::kLong), g = numbers({4, 9, 16}, dtype());
  const at::Tensor w0 = bench.learning("it.weight"), y0 = at::embedding(w0, ids);
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {ids})[0];
  bench.backward({y}, {g});
  EXPECT_TRUE(bitwise(y, y0));
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
}

// Of two calls, so that a band is written once and added to once; 130 columns are no four equal bands.
TEST_P(Pairs, ALargeTableHasItsGradientInBands) {
  auto* layer = bench.layer(dtype(), "embedding", {{"vocab", 9000}, {"width", 130}});
  const at::Tensor w0 = bench.learning("it.weight");
  std::vector<at::Tensor> ys, gs;
  for (int call = 0; call < 2; ++call) {
    const at::Tensor ids = at::randint(9000, {2, 300}, at::kLong), g = numbers({2, 300, 130}, dtype());
    at::embedding(w0, ids).backward(g);
    ys.push_back(bench.call(layer, {ids})[0]);
    gs.push_back(g);
  }
  bench.backward(ys, gs);
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
}

TEST_P(Pairs, MlpIsItsTwoLinears) {
  auto* layer = bench.layer(dtype(), "mlp",
                            {{"up", "c_fc"},
                             {"down", "c_proj"},
                             {"width", 16},
                             {"inner", 64},
                             {"activation", "gelu_tanh"},
                             {"layout", "in_out"}},
                            {}, "h.0.mlp");
  const at::Tensor x = numbers({10, 16}, dtype(), true), g = numbers({10, 16}, dtype()), x0 = leaf(x);
  const at::Tensor up = bench.learning("h.0.mlp.c_fc.weight"), up_bias = bench.learning("h.0.mlp.c_fc.bias");
  const at::Tensor down = bench.learning("h.0.mlp.c_proj.weight"), down_bias = bench.learning("h.0.mlp.c_proj.bias");
  const at::Tensor y0 = at::addmm(down_bias, at::gelu(at::addmm(up_bias, x0, up), "tanh"), down);
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {x})[0];
  bench.backward({y}, {g});
  EXPECT_TRUE(bitwise(y, y0));
  EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("h.0.mlp.c_fc.weight"), up.grad()));
  EXPECT_TRUE(bitwise(bench.grad("h.0.mlp.c_proj.bias"), down_bias.grad()));
}

// The loss has an e^x and an order of summing of its own. With u = 2^-24 (2^-53) a probability p = e^d is off by some
// (2 |d| + 10) u of it on either side (kernels/cross_entropy), |d| < 10 here: 6e-7 at most if all errors had one sign.
double loss_bound(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-6 : 1e-14; }

TEST_P(Pairs, HeadLossEqualsAutogradWithAndWithoutTheLogits) {
  for (const bool wanted : {false, true})
    for (const bool x_learns : {true, false})
      for (const bool w_learns : {true, false}) {
        if (!x_learns && !w_learns) continue;
        SCOPED_TRACE(::testing::Message() << wanted << x_learns << w_learns);
        Bench b;
        const std::vector<std::string> frozen(w_learns ? 0 : 1, "it.weight");
        auto* layer = b.layer(dtype(), "head_loss", {{"vocab", 51}, {"width", 16}}, frozen);
        const at::Tensor x = numbers({2, 7, 16}, dtype(), x_learns), x0 = leaf(x, x_learns),
                         w0 = leaf(b.value("it.weight"), w_learns);
        const at::Tensor labels = at::randint(51, {2, 7}, at::kLong);
        labels[0][3] = -100;
        labels[1][6] = -100;
        const at::Tensor logits0 = at::linear(x0, w0);
        const at::Tensor loss0 =
            at::nll_loss(at::log_softmax(logits0.view({-1, 51}), -1), labels.view(-1), {}, at::Reduction::Sum, -100);
        const at::Tensor g = at::scalar_tensor(0.37, dtype());
        loss0.backward(g);
        const auto out = b.call(layer, {x, labels}, 2, {.want = wanted ? uint32_t{MORTISE_WANT_LOGITS} : 0});
        b.backward({out[0]}, {g});
        EXPECT_LT(apart(out[0], loss0), loss_bound(dtype()));
        EXPECT_EQ(out[1].defined(), wanted);
        if (wanted) {
          EXPECT_TRUE(bitwise(out[1], logits0));
        }
        EXPECT_EQ(x.grad().defined(), x_learns);
        if (x_learns) {
          EXPECT_LT(apart(x.grad(), x0.grad()), loss_bound(dtype()));
        }
        EXPECT_EQ(b.grad("it.weight").defined(), w_learns);
        if (w_learns) {
          EXPECT_LT(apart(b.grad("it.weight"), w0.grad()), loss_bound(dtype()));
        }
      }
}

// The gradient of logits that nobody was given takes their place; that of logits that somebody has does not.
TEST_P(Pairs, HeadLossLeavesTheLogitsThatItGave) {
  for (const bool wanted : {false, true}) {
    Bench b;
    auto* layer = b.layer(dtype(), "head_loss", {{"vocab", 51}, {"width", 16}});
    const at::Tensor x = numbers({14, 16}, dtype(), true), labels = at::randint(51, {14}, at::kLong);
    const auto out = b.call(layer, {x, labels}, 2, {.want = wanted ? uint32_t{MORTISE_WANT_LOGITS} : 0});
    const at::Tensor before = wanted ? out[1].detach().clone() : at::Tensor(), one = at::ones({}, dtype());
    b.TestHost::backward(out[0], MORTISE_RETAIN_GRAPH, one);
    const at::Tensor first = x.grad().clone();
    if (wanted) {
      EXPECT_TRUE(bitwise(out[1], before));
      b.TestHost::backward(out[0], 0, one);
      EXPECT_TRUE(bitwise(x.grad(), first + first));
    } else {
      const Thrown again = thrown([&] { b.TestHost::backward(out[0], 0, one); });
      EXPECT_NE(again.text.find("modified by an inplace operation"), std::string::npos) << again.text;
    }
  }
}

TEST_P(Pairs, HeadLossPassesAGradientOfTheLogitsOn) {
  for (const bool labelled : {true, false}) {
    Bench b;
    auto* layer = b.layer(dtype(), "head_loss", {{"vocab", 51}, {"width", 16}});
    const at::Tensor x = numbers({2, 7, 16}, dtype(), true), x0 = leaf(x), w0 = leaf(b.value("it.weight")),
                     g = numbers({2, 7, 51}, dtype());
    const at::Tensor labels = labelled ? at::randint(51, {2, 7}, at::kLong) : at::Tensor();
    const at::Tensor logits0 = at::linear(x0, w0);
    at::Tensor total0 = (logits0 * g).sum();
    if (labelled)
      total0 = total0 +
               at::nll_loss(at::log_softmax(logits0.view({-1, 51}), -1), labels.view(-1), {}, at::Reduction::Sum, -100);
    total0.backward();
    const auto out = b.call(layer, {x, labels}, 2, {.want = MORTISE_WANT_LOGITS});
    EXPECT_EQ(out[0].defined(), labelled);
    std::vector<at::Tensor> roots = {out[1]}, seeds = {g};
    if (labelled) roots.push_back(out[0]), seeds.push_back(at::ones({}, dtype()));
    b.backward(roots, seeds);
    EXPECT_LT(apart(x.grad(), x0.grad()), loss_bound(dtype()));
    EXPECT_LT(apart(b.grad("it.weight"), w0.grad()), loss_bound(dtype()));
  }
}

TEST_P(Pairs, AHeadTiedToAnEmbeddingHasOneGradient) {
  mortise_layer *table = nullptr, *head = nullptr;
  bench.declare([&](Builder& b) {
    b.segment("here");
    table = b.layer("embedding", "wte", {{"vocab", 20}, {"width", 8}});
    head = b.layer("head_loss", "lm_head", {{"vocab", 20}, {"width", 8}, {"tie", b.find("wte.weight")}});
  });
  EXPECT_EQ(bench.get().declaration().params.size(), 1u);
  bench.fill(dtype());
  const at::Tensor ids = at::randint(20, {3, 5}, at::kLong), labels = at::randint(20, {3, 5}, at::kLong);
  const at::Tensor w0 = bench.learning("wte.weight");
  at::nll_loss(at::log_softmax(at::linear(at::embedding(w0, ids), w0).view({-1, 20}), -1), labels.view(-1), {},
               at::Reduction::Sum, -100)
      .backward();
  const at::Tensor loss = bench.call(head, {bench.call(table, {ids})[0], labels}, 2)[0];
  bench.backward({loss}, {at::ones({}, dtype())});
  EXPECT_LT(apart(bench.grad("wte.weight"), w0.grad()), loss_bound(dtype()));
}

// ---- lower precision: what is cast, and what is not ----

class Bf16 : public ::testing::Test {
 protected:
  Bench bench;
  const Pass way = {.compute_dtype = MORTISE_BF16};
};

TEST_F(Bf16, LinearMultipliesInBf16AndGivesFp32Gradients) {
  auto* layer = bench.layer(at::kFloat, "linear", {{"in", 32}, {"out", 48}, {"activation", "gelu_tanh"}});
  const at::Tensor x = numbers({16, 32}, at::kFloat, true), g = numbers({16, 48}, at::kBFloat16), x0 = leaf(x);
  const at::Tensor w0 = leaf(bench.value("it.weight")), b0 = leaf(bench.value("it.bias"));
  const at::Tensor y0 = at::gelu(at::linear(x0.to(at::kBFloat16), w0.to(at::kBFloat16), b0.to(at::kBFloat16)), "tanh");
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {x}, 1, way)[0];
  bench.backward({y}, {g});
  EXPECT_TRUE(bitwise(y, y0));
  EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
  EXPECT_LT(apart(bench.grad("it.bias"), b0.grad()), 0.01);  // ours is summed in fp32
}

TEST_F(Bf16, NormOfABf16StreamHasFp32Statistics) {
  auto* layer = bench.layer(at::kFloat, "norm", {{"width", 64}});
  const at::Tensor x = numbers({8, 64}, at::kBFloat16, true), g = numbers({8, 64}, at::kBFloat16), x0 = leaf(x);
  const at::Tensor w0 = leaf(bench.value("it.weight")), b0 = leaf(bench.value("it.bias"));
  const auto [y0, mean, rstd] = at::native_layer_norm(x0, at::IntArrayRef{64}, w0, b0, 1e-5);
  EXPECT_EQ(mean.scalar_type(), at::kFloat);
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {x}, 1, way)[0];
  bench.backward({y}, {g});
  EXPECT_TRUE(bitwise(y, y0));
  EXPECT_TRUE(bitwise(x.grad(), x0.grad()));
  EXPECT_TRUE(bitwise(bench.grad("it.weight"), w0.grad()));
}

TEST_F(Bf16, TheResidualStreamStaysFp32UnderABf16Branch) {
  for (const double p : {0.0, 0.1}) {
    Bench b;
    auto* layer = b.layer(at::kFloat, "residual_norm", {{"width", 64}, {"dropout", p}});
    const at::Tensor branch = numbers({8, 64}, at::kBFloat16, true), residual = numbers({8, 64}, at::kFloat, true);
    const auto out = b.call(layer, {branch, residual}, 2, way);
    EXPECT_EQ(out[0].scalar_type(), at::kBFloat16);
    EXPECT_EQ(out[1].scalar_type(), at::kFloat);
    b.backward(out, {numbers({8, 64}, at::kBFloat16), numbers({8, 64}, at::kFloat)});
    EXPECT_EQ(branch.grad().scalar_type(), at::kBFloat16);
    EXPECT_EQ(residual.grad().scalar_type(), at::kFloat);
    if (p == 0) {
      EXPECT_TRUE(bitwise(out[1], residual + branch));
      EXPECT_TRUE(bitwise(branch.grad(), residual.grad().to(at::kBFloat16)));
    }
  }
}

TEST_F(Bf16, LossIsFp32) {
  auto* layer = bench.layer(at::kFloat, "head_loss", {{"vocab", 51}, {"width", 16}});
  const at::Tensor x = numbers({14, 16}, at::kFloat, true), x0 = leaf(x), w0 = leaf(bench.value("it.weight"));
  const at::Tensor labels = at::randint(51, {14}, at::kLong);
  const at::Tensor logits0 = at::linear(x0.to(at::kBFloat16), w0.to(at::kBFloat16));
  const at::Tensor loss0 =
      at::nll_loss(at::log_softmax(logits0.to(at::kFloat), -1), labels, {}, at::Reduction::Sum, -100);
  loss0.backward();
  const auto out = bench.call(layer, {x, labels}, 2, {.compute_dtype = MORTISE_BF16, .want = MORTISE_WANT_LOGITS});
  bench.backward({out[0]}, {at::ones({}, at::kFloat)});
  EXPECT_EQ(out[0].scalar_type(), at::kFloat);
  EXPECT_LT(apart(out[0], loss0), loss_bound(at::kFloat));
  EXPECT_TRUE(bitwise(out[1], logits0));
  // Both round the gradient of the logits to bf16. Where it is off by 1e-6 on either side of a middle of two numbers
  // they differ by 2^-8: in less than one of 714 elements; the products have the same rounding to bf16 again.
  EXPECT_LT(apart(x.grad(), x0.grad()), 1e-3);
  EXPECT_LT(apart(bench.grad("it.weight"), w0.grad()), 1e-3);
}

// Whole half precision: weights, statistics' weights and all are bf16.
TEST_F(Bf16, WeightsStoredInBf16KeepFp32Statistics) {
  auto* layer = bench.layer(at::kBFloat16, "norm", {{"width", 64}});
  const at::Tensor x = numbers({8, 64}, at::kBFloat16, true), g = numbers({8, 64}, at::kBFloat16);
  const at::Tensor y = bench.call(layer, {x})[0];
  bench.backward({y}, {g});
  const at::Tensor wide = at::layer_norm(x.detach().to(at::kFloat), {64}, bench.value("it.weight").to(at::kFloat),
                                         bench.value("it.bias").to(at::kFloat));
  EXPECT_TRUE(bitwise(y, wide.to(at::kBFloat16)));
  EXPECT_EQ(bench.grad("it.weight").scalar_type(), at::kBFloat16);
}

// ---- refusals ----

TEST(Refusals, AWordThatIsNoChoiceNamesTheLayer) {
  Bench b;
  const Thrown t = thrown(
      [&] { b.layer(at::kFloat, "linear", {{"in", 4}, {"out", 4}, {"activation", "swish"}}, {}, "h.2.mlp.c_fc"); });
  EXPECT_EQ(t.text.substr(0, t.text.find('\n')), "h.2.mlp.c_fc: there is no activation `swish`");
}

TEST(Refusals, LabelsThatAreNoClassesAreNamed) {
  Bench b;
  auto* layer = b.layer(at::kFloat, "loss", {});
  const at::Tensor logits = numbers({3, 5}, at::kFloat, true);
  const auto refused = [&](const at::Tensor& labels) {
    const Thrown t = thrown([&] { b.call(layer, {logits, labels}); });
    EXPECT_EQ(t.status, MORTISE_E_DATA);
    return t.text.substr(0, t.text.find('\n'));
  };
  EXPECT_EQ(refused(at::tensor({0, 5, -100}, at::kLong)),
            "the field `labels` has 5; the model guesses 0 to 4, and -100 is for what it need not guess");
  EXPECT_EQ(refused(at::tensor({-1, 4, 2}, at::kLong)),
            "the field `labels` has -1; the model guesses 0 to 4, and -100 is for what it need not guess");
  EXPECT_EQ(refused(at::tensor({0, 1, 2}, at::kInt)),
            "the field `labels` is of I32; the loss takes numbers of classes, or ids, of I64");
}

TEST(Refusals, AWrongShapeIsAnErrorOfTheOperator) {
  Bench b;
  auto* layer = b.layer(at::kFloat, "linear", {{"in", 4}, {"out", 4}});
  EXPECT_ANY_THROW(b.call(layer, {numbers({3, 5}, at::kFloat, true)}));
  EXPECT_EQ(b.call(layer, {numbers({3, 4}, at::kFloat, true)})[0].sizes(), at::IntArrayRef({3, 4}));
}

}  // namespace
}  // namespace mortise::testing
