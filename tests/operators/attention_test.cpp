// attention.math and attention.flash against ATen, against each other, and what they refuse.
#include <limits>

#include "tests/operators/bench.hpp"

namespace mortise::testing {
namespace {

const at::Tensor none;
constexpr int64_t B = 2, T = 19, H = 3, D = 8;

struct Heads {
  at::Tensor q, k, v;  // [B, H, T, D]
};
Heads heads_of(const at::Tensor& qkv) {
  const auto parts = qkv.view({B, T, 3, H, D}).permute({2, 0, 3, 1, 4}).contiguous();
  return {parts[0], parts[1], parts[2]};
}
at::Tensor merged(const at::Tensor& y_BHTD) { return y_BHTD.transpose(1, 2).reshape({B, T, H * D}); }

// Textbook attention; `added` is broadcast to the scores, `mask` multiplies the probabilities.
at::Tensor textbook(const at::Tensor& qkv, const at::Tensor& added, const at::Tensor& mask) {
  const auto [q, k, v] = heads_of(qkv);
  at::Tensor scores = at::matmul(q * (1 / std::sqrt(static_cast<double>(D))), k.transpose(2, 3));
  if (added.defined()) scores = scores + added;
  at::Tensor p = at::softmax(scores, -1);
  if (mask.defined()) p = p * mask;
  return merged(at::matmul(p, v));
}

at::Tensor causal_mask(at::ScalarType dtype) {
  return at::full({T, T}, -std::numeric_limits<double>::infinity(), dtype).triu(1);
}

class Attention : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  mortise_layer* layer(Bench& b, bool causal) {
    return b.layer(GetParam(), "attention", {{"heads", H}, {"head_dim", D}, {"causal", causal}, {"dropout", 0.0}});
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Attention, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& it) { return at::toString(it.param); });

TEST_P(Attention, MathEqualsTheTextbookBitForBit) {
  for (const bool causal : {false, true}) {
    Bench b({"operators.aten", "attention.math"});
    auto* l = layer(b, causal);
    const at::Tensor qkv = numbers({B, T, 3 * H * D}, GetParam(), true), g = numbers({B, T, H * D}, GetParam()),
                     qkv0 = leaf(qkv);
    const at::Tensor y0 = textbook(qkv0, causal ? causal_mask(GetParam()) : at::Tensor(), {});
    y0.backward(g);
    const at::Tensor y = b.call(l, {qkv, none})[0];
    b.backward({y}, {g});
    EXPECT_TRUE(bitwise(y, y0));
    EXPECT_TRUE(bitwise(qkv.grad(), qkv0.grad()));
  }
}

TEST_P(Attention, MathTakesABooleanMaskAndAMaskOfNumbers) {
  Bench bench({"operators.aten", "attention.math"});
  auto* l = layer(bench, false);
  const at::Tensor keeps = at::ones({B, T}, at::kBool);
  keeps[0].slice(0, 12).fill_(false);
  const at::Tensor added =
      at::zeros({B, T}, at::kFloat).masked_fill(keeps.logical_not(), std::numeric_limits<float>::lowest());
  const at::Tensor qkv = numbers({B, T, 3 * H * D}, GetParam(), true), g = numbers({B, T, H * D}, GetParam()),
                   qkv0 = leaf(qkv);
  const at::Tensor y0 = textbook(qkv0, added.view({B, 1, 1, T}), {});
  y0.backward(g);
  for (const at::Tensor& mask : {keeps, added}) {
    qkv.mutable_grad() = at::Tensor();
    bench.begin_step();
    bench.begin_micro(0, true);
    const at::Tensor y = bench.call(l, {qkv, mask})[0];
    bench.backward({y}, {g});
    EXPECT_TRUE(bitwise(y, y0));
    EXPECT_TRUE(bitwise(qkv.grad(), qkv0.grad()));
  }
  // A sample without a single key has no infinity in it: every key counts alike, however large its score.
  keeps[1].fill_(false);
  const at::Tensor large = qkv.detach().mul(1000), y = bench.call(l, {large, keeps})[0];
  const at::Tensor mean = large[1].slice(1, 2 * H * D).mean(0);
  EXPECT_TRUE(at::allclose(y[1], mean.expand({T, H * D}), 1e-5, 1e-2));
}

// The bits of a place show through values that pick each probability out: with scores of zero every one is 1 / T.
TEST_P(Attention, MathDropsProbabilitiesInForwardAndGradient) {
  constexpr int64_t n = 16;  // positions, and width of a head
  Bench bench({"operators.aten", "attention.math"});
  auto* l = bench.layer(GetParam(), "attention", {{"heads", 1}, {"head_dim", n}, {"causal", false}, {"dropout", 0.25}});
  const at::Tensor zeros = at::zeros({1, n, n}, GetParam()), pick = at::eye(n, GetParam()).view({1, n, n});
  const at::Tensor mask = bench.call(l, {at::cat({zeros, zeros, pick}, 2), none})[0].detach() * static_cast<double>(n);
  EXPECT_NEAR(mask.eq(0).to(at::kFloat).mean().item<float>(), 0.25, 0.11);

  const at::Tensor qkv = numbers({1, n, 3 * n}, GetParam(), true), g = numbers({1, n, n}, GetParam()), qkv0 = leaf(qkv);
  const auto parts = qkv0.view({n, 3, n}).permute({1, 0, 2});
  const at::Tensor p = at::softmax(at::mm(parts[0] / std::sqrt(static_cast<double>(n)), parts[1].t()), -1);
  const at::Tensor y0 = at::mm(p * mask[0], parts[2]);
  y0.backward(g[0]);
  const at::Tensor y = bench.call(l, {qkv, none})[0];
  bench.backward({y}, {g});
  const double near = GetParam() == at::kFloat ? 2e-6 : 1e-14;
  EXPECT_LT(apart(y[0], y0), near);
  EXPECT_LT(apart(qkv.grad(), qkv0.grad()), near);
  const at::Tensor whole = bench.call(l, {qkv, none}, 1, {.mode = MORTISE_EVAL, .flags = 0})[0];
  EXPECT_LT(apart(whole[0], at::mm(p, parts[2])), near);
}

TEST_P(Attention, FlashEqualsScaledDotProductAttentionBitForBit) {
  for (const bool causal : {false, true}) {
    Bench b({"operators.aten", "attention.flash"});
    auto* l = layer(b, causal);
    const at::Tensor qkv = numbers({B, T, 3 * H * D}, GetParam(), true), g = numbers({B, T, H * D}, GetParam()),
                     qkv0 = leaf(qkv);
    const auto [q, k, v] = heads_of(qkv0);
    const at::Tensor y0 = merged(at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal));
    y0.backward(g);
    const at::Tensor y = b.call(l, {qkv, none})[0];
    b.backward({y}, {g});
    EXPECT_TRUE(bitwise(y, y0));
    EXPECT_TRUE(bitwise(qkv.grad(), qkv0.grad()));
  }
}

TEST_P(Attention, FlashAndMathAgreeToRounding) {
  const at::Tensor qkv = numbers({B, T, 3 * H * D}, GetParam()), g = numbers({B, T, H * D}, GetParam());
  at::Tensor y[2], d[2];
  for (int i = 0; i < 2; ++i) {
    Bench b({"operators.aten", i ? "attention.flash" : "attention.math"});
    auto* l = layer(b, true);
    const at::Tensor x = leaf(qkv);
    y[i] = b.call(l, {x, none})[0];
    b.backward({y[i]}, {g});
    d[i] = x.grad();
  }
  const double near = GetParam() == at::kFloat ? 2e-6 : 1e-14;
  EXPECT_LT(apart(y[0], y[1]), near);
  EXPECT_LT(apart(d[0], d[1]), near);
}

// bf16 products, fp32 softmax: near the fp32 result by bf16's eight bits, and the gradient comes in the dtype of qkv.
TEST(AttentionBf16, BothComputeInBf16) {
  const at::Tensor qkv = numbers({B, T, 3 * H * D}, at::kFloat), g = numbers({B, T, H * D}, at::kFloat),
                   qkv0 = leaf(qkv);
  const at::Tensor y0 = textbook(qkv0, causal_mask(at::kFloat), {});
  y0.backward(g);
  for (const char* plugin : {"attention.math", "attention.flash"}) {
    SCOPED_TRACE(plugin);
    Bench b({"operators.aten", plugin});
    auto* l = b.layer(at::kFloat, "attention", {{"heads", H}, {"head_dim", D}, {"causal", true}, {"dropout", 0.0}});
    const at::Tensor x = leaf(qkv);
    const at::Tensor y = b.call(l, {x, none}, 1, {.compute_dtype = MORTISE_BF16})[0];
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    b.backward({y}, {g.to(at::kBFloat16)});
    EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
    EXPECT_LT(apart(y, y0), 0.01);
    EXPECT_LT(apart(x.grad(), qkv0.grad()), 0.02);
  }
}

TEST(AttentionRefusals, FlashRefusesDropoutInTrainingOnly) {
  TestHost host;
  Plugin& flash = host.load(plugin("attention.flash"));
  const auto* op = static_cast<const mortise_operator*>(flash.at("attention").object);
  const auto refusal = [&](double p, uint32_t mode) {
    const mortise_attr attrs[] = {{{"dropout", 7}, Arg(p)}};
    mortise_place place{};
    place.struct_size = sizeof place;
    place.mode = mode;
    place.device = MORTISE_CPU;
    place.attrs = attrs;
    place.n_attrs = 1;
    int yes = 0;
    mortise_str why{}, fix{};
    EXPECT_EQ(op->supports(flash.self, &place, &yes, &why, &fix), MORTISE_OK);
    return yes ? std::string() : std::string(why.ptr, why.len) + "; " + std::string(fix.ptr, fix.len);
  };
  EXPECT_EQ(refusal(0.1, MORTISE_TRAIN),
            "dropout 0.1 in training; [attention.math], or let it choose: [attention.auto]");
  EXPECT_EQ(refusal(0.1, MORTISE_EVAL), "");
  EXPECT_EQ(refusal(0.0, MORTISE_TRAIN), "");
}

TEST(AttentionRefusals, FlashRefusesAMaskAndSaysWhatToWrite) {
  Bench b({"operators.aten", "attention.flash"});
  auto* l = b.layer(at::kFloat, "attention", {{"heads", H}, {"head_dim", D}, {"dropout", 0.0}});
  const Thrown t = thrown([&] { b.call(l, {numbers({B, T, 3 * H * D}, at::kFloat), at::ones({B, T}, at::kBool)}); });
  EXPECT_EQ(t.status, MORTISE_E_UNSUPPORTED);
  EXPECT_NE(t.text.find("attention.flash takes no mask"), std::string::npos) << t.text;
}

}  // namespace
}  // namespace mortise::testing
