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
  mortise_layer* layer(Bench& b, bool causal, const char* mask = "none") {
    return b.layer(GetParam(), "attention",
                   {{"heads", H}, {"head_dim", D}, {"causal", causal}, {"dropout", 0.0}, {"mask", mask}});
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
  auto* l = layer(bench, false, "keys");
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
    const at::Tensor y = bench.call(l, {qkv, none, none, mask})[0];
    bench.backward({y}, {g});
    EXPECT_TRUE(bitwise(y, y0));
    EXPECT_TRUE(bitwise(qkv.grad(), qkv0.grad()));
  }
  // A sample without a single key has no infinity in it: every key counts alike, however large its score.
  keeps[1].fill_(false);
  const at::Tensor large = qkv.detach().mul(1000), y = bench.call(l, {large, none, none, keeps})[0];
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

TEST(AttentionRefusals, AMaskThatWasNotAnnouncedOrHasAnotherShapeIsRefused) {
  for (const char* id : {"attention.math", "attention.flash"}) {
    const auto text = [&](const char* mask, const at::Tensor& given) {
      Bench b({"operators.aten", id});
      auto* l = b.layer(at::kFloat, "attention", {{"heads", H}, {"head_dim", D}, {"mask", mask}});
      return thrown([&] { b.call(l, {numbers({B, T, 3 * H * D}, at::kFloat), none, none, given}); }).text;
    };
    EXPECT_NE(text("none", at::ones({B, T}, at::kBool)).find("it: a mask came"), std::string::npos);
    for (const char* mask : {"keys", "segments", "full"})
      EXPECT_NE(
          text(mask, at::ones({B, T + 1}, at::kLong)).find("the mask has not the shape of one of " + std::string(mask)),
          std::string::npos);
  }
}

TEST(AttentionRefusals, CausalQueriesThatWouldSeeNoKeyAreRefused) {
  for (const char* id : {"attention.math", "attention.flash"}) {
    Bench b({"operators.aten", id});
    auto* l = b.layer(at::kFloat, "attention", {{"heads", H}, {"head_dim", D}, {"causal", true}});
    const at::Tensor q = numbers({B, T + 1, H * D}, at::kFloat), k = numbers({B, T, H * D}, at::kFloat);
    EXPECT_NE(thrown([&] { b.call(l, {q, k, k}); }).text.find(" the first would see none"), std::string::npos) << id;
  }
}

// Queries, keys and values by themselves: fewer heads of keys, fewer queries than keys, every mask, a window, a bias.
struct Form {
  const char* name;
  int64_t kv_heads, queries, window;
  bool causal;
  const char* mask;
  bool bias = false;
};
std::ostream& operator<<(std::ostream& to, const Form& f) { return to << f.name; }

const Form kForms[] = {{"plain", H, T, 0, false, "none"},
                       {"shared_keys", 1, T, 0, true, "none"},
                       {"last_query", 1, 1, 0, true, "none"},
                       {"last_queries", H, 5, 0, true, "keys"},
                       {"window", H, T, 4, true, "none"},
                       {"window_both_sides", 1, T, 4, false, "keys"},
                       {"window_of_last_queries", H, 3, 6, true, "none"},
                       {"segments", H, T, 0, true, "segments"},
                       {"segments_both_sides", 1, T, 0, false, "segments"},
                       {"segments_and_window", H, T, 4, true, "segments"},
                       {"full", H, T, 0, false, "full"},
                       {"full_numbers", 1, 7, 0, true, "full_numbers"},
                       {"bias", 1, T, 0, true, "none", true}};

struct Example {
  at::Tensor q, k, v, mask, bias, g;
};
Example example(const Form& f, at::ScalarType dtype) {
  Example e{numbers({B, f.queries, H * D}, dtype, true),
            numbers({B, T, f.kv_heads * D}, dtype, true),
            numbers({B, T, f.kv_heads * D}, dtype, true),
            {},
            {},
            numbers({B, f.queries, H * D}, dtype)};
  const std::string mask = f.mask;
  if (mask == "keys") {
    e.mask = at::ones({B, T}, at::kBool);
    e.mask[0].slice(0, 0, 3).fill_(false);
  }
  if (mask == "segments") e.mask = at::arange(T).div(5, "floor").add(at::arange(B).view({B, 1}));
  if (mask == "full") e.mask = numbers({1, H, T, T}, dtype).gt(-0.5);
  if (mask == "full_numbers") e.mask = numbers({B, 1, f.queries, T}, at::kFloat);
  if (f.bias) e.bias = numbers({1, H, T, T}, dtype, true);
  return e;
}
// Position by position: which keys a query sees, said once more in other words.
at::Tensor expected(const Form& f, const Example& e) {
  const at::Tensor heads_q = e.q.view({B, f.queries, H, D}).transpose(1, 2),
                   heads_k = e.k.view({B, T, f.kv_heads, D}).transpose(1, 2).repeat_interleave(H / f.kv_heads, 1),
                   heads_v = e.v.view({B, T, f.kv_heads, D}).transpose(1, 2).repeat_interleave(H / f.kv_heads, 1);
  at::Tensor scores = at::matmul(heads_q, heads_k.transpose(2, 3)) / std::sqrt(static_cast<double>(D));
  const at::Tensor seen = at::ones({B, H, f.queries, T}, at::kBool);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < f.queries; ++i)
      for (int64_t j = 0; j < T; ++j) {
        const int64_t at = i + T - f.queries;
        bool sees = !(f.causal && j > at) && !(f.window && std::abs(at - j) >= f.window);
        if (std::string(f.mask) == "keys") sees = sees && e.mask[b][j].item<bool>();
        if (std::string(f.mask) == "segments") sees = sees && e.mask[b][j].equal(e.mask[b][at]);
        if (!sees) seen[b].select(1, i).select(1, j).fill_(false);
      }
  if (std::string(f.mask) == "full") seen.logical_and_(e.mask);
  if (std::string(f.mask) == "full_numbers") scores = scores + e.mask;
  if (e.bias.defined()) scores = scores + e.bias;
  const at::Tensor p = at::softmax(scores.masked_fill(seen.logical_not(), -1e30), -1);
  return at::matmul(p, heads_v).transpose(1, 2).reshape({B, f.queries, H * D});
}

class Forms : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Of, Forms, ::testing::ValuesIn(kForms), [](const auto& it) { return it.param.name; });

// Both to fp64's rounding: a few hundred sums of numbers near 1.
TEST_P(Forms, EqualTheTextbook) {
  const Form& f = GetParam();
  for (const char* id : {"attention.math", "attention.flash"}) {
    if (f.bias && std::string(id) == "attention.flash") continue;
    SCOPED_TRACE(id);
    Bench bench({"operators.aten", id});
    const std::string mask = std::string(f.mask) == "full_numbers" ? "full" : f.mask;
    auto* l = bench.layer(at::kDouble, "attention",
                          {{"heads", H},
                           {"kv_heads", f.kv_heads},
                           {"head_dim", D},
                           {"causal", f.causal},
                           {"window", f.window},
                           {"mask", mask},
                           {"bias", f.bias}});
    const Example e = example(f, at::kDouble);
    Example e0 = e;
    e0.q = leaf(e.q), e0.k = leaf(e.k), e0.v = leaf(e.v);
    if (f.bias) e0.bias = leaf(e.bias);
    const at::Tensor y0 = expected(f, e0);
    y0.backward(e.g);
    const at::Tensor y = bench.call(l, {e.q, e.k, e.v, e.mask, e.bias})[0];
    bench.backward({y}, {e.g});
    EXPECT_LT(apart(y, y0), 1e-13);
    EXPECT_LT(apart(e.q.grad(), e0.q.grad()), 1e-13);
    EXPECT_LT(apart(e.k.grad(), e0.k.grad()), 1e-13);
    EXPECT_LT(apart(e.v.grad(), e0.v.grad()), 1e-13);
    if (f.bias) {
      EXPECT_LT(apart(e.bias.grad(), e0.bias.grad()), 1e-13);
    }
  }
}

}  // namespace
}  // namespace mortise::testing
