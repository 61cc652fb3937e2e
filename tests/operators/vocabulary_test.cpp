// rope, gated, the composites and the losses of operators.aten against what they are made of, written out in ATen.
#include <numbers>

#include "tests/operators/bench.hpp"

namespace mortise::testing {
namespace {

const at::Tensor none;

class Vocabulary : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType dtype() const { return GetParam(); }
  Bench bench;
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Vocabulary, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& it) { return at::toString(it.param); });

// transformers' apply_rotary_pos_emb, which cats halves of angles and of x.
at::Tensor rotated(const at::Tensor& x_BTHD, const at::Tensor& positions, double theta) {
  const int64_t D = x_BTHD.size(3);
  const at::Tensor frequency = 1.0 / at::pow(theta, at::arange(0, D, 2, at::kFloat) / D);
  const at::Tensor half = positions.to(at::kFloat).unsqueeze(-1) * frequency;
  const at::Tensor angle = at::cat({half, half}, -1).unsqueeze(-2);
  const at::Tensor turned = at::cat({-x_BTHD.slice(3, D / 2), x_BTHD.slice(3, 0, D / 2)}, 3);
  return x_BTHD * at::cos(angle).to(x_BTHD.scalar_type()) + turned * at::sin(angle).to(x_BTHD.scalar_type());
}

TEST_P(Vocabulary, RopeTurnsHalvesAsLlamaDoesAndBackwardTurnsBack) {
  constexpr int64_t B = 2, T = 7, H = 3, D = 8;
  const at::Tensor counted = at::arange(T), given = at::randint(100, {B, T}, at::kLong);
  for (const at::Tensor& positions : {none, counted, given}) {
    Bench b;
    auto* layer = b.layer(dtype(), "rope", {{"head_dim", D}, {"theta", 500.0}});
    const at::Tensor x = numbers({B, T, H * D}, dtype(), true), g = numbers({B, T, H * D}, dtype()), x0 = leaf(x);
    const at::Tensor y0 =
        rotated(x0.view({B, T, H, D}), positions.defined() ? positions : counted, 500).reshape({B, T, H * D});
    y0.backward(g);
    const at::Tensor y = b.call(layer, {x, positions})[0];
    b.backward({y}, {g});
    EXPECT_TRUE(bitwise(y, y0));
    EXPECT_LT(apart(x.grad(), x0.grad()), dtype() == at::kFloat ? 1e-6 : 1e-14);  // summed in another order
  }
}

// transformers' _compute_llama3_parameters and its linear neighbour: whole frequencies, and pieces between two borders.
TEST_P(Vocabulary, RopeScalesFrequenciesAsTransformersDoes) {
  constexpr int64_t T = 40, D = 32;
  constexpr double kTheta = 500, kFactor = 6, kLow = 1, kHigh = 4;
  constexpr int64_t kContext = 64;
  const at::Tensor x = numbers({1, T, D}, dtype()), plain = 1.0 / at::pow(kTheta, at::arange(0, D, 2, at::kFloat) / D);
  const double context = kContext;
  const at::Tensor length = 2 * std::numbers::pi / plain, share = (context / length - kLow) / (kHigh - kLow);
  const at::Tensor between = (1 - share) * plain / kFactor + share * plain;
  const at::Tensor llama3 =
      at::where(length > context / kLow, plain / kFactor, at::where(length < context / kHigh, plain, between));
  const auto turned = [&](const at::Tensor& frequency) {
    const at::Tensor angle = at::arange(T).to(at::kFloat).unsqueeze(-1) * frequency;
    const at::Tensor c = at::cos(angle).to(dtype()), s = at::sin(angle).to(dtype());
    const at::Tensor a = x.slice(2, 0, D / 2), b = x.slice(2, D / 2);
    return at::cat({a * c - b * s, b * c + a * s}, 2);
  };
  Bench b;
  auto* linear = b.layer(dtype(), "rope", {{"head_dim", D}, {"theta", kTheta}, {"factor", kFactor}});
  auto* of_llama3 = bench.layer(
      dtype(), "rope",
      {{"head_dim", D}, {"theta", kTheta}, {"factor", kFactor}, {"low", kLow}, {"high", kHigh}, {"context", kContext}});
  // An angle is up to 40, a frequency a few roundings of 6e-8 away, and a number of x up to 5.
  constexpr double kNear = 40 * 4 * 6e-8 * 5;
  EXPECT_LT((b.call(linear, {x})[0] - turned(plain / kFactor)).abs().max().item<double>(), kNear);
  EXPECT_LT((bench.call(of_llama3, {x})[0] - turned(llama3)).abs().max().item<double>(), kNear);
  EXPECT_GT((turned(llama3) - turned(plain / kFactor)).abs().max().item<double>(), 0.1);
  EXPECT_GT((turned(llama3) - turned(plain)).abs().max().item<double>(), 0.1);
}

TEST_P(Vocabulary, RopeOfPairsIsThatOfHalvesInAnotherOrder) {
  constexpr int64_t D = 8;
  const at::Tensor x = numbers({2, 5, D}, dtype());
  const at::Tensor order = at::arange(D).view({2, D / 2}).t().reshape({-1});  // 0 4 1 5 …
  auto* halves = bench.layer(dtype(), "rope", {{"head_dim", D}});
  const at::Tensor y = bench.call(halves, {x})[0];
  Bench b;
  auto* pairs = b.layer(dtype(), "rope", {{"head_dim", D}, {"layout", "pairs"}});
  EXPECT_TRUE(bitwise(b.call(pairs, {x.index_select(2, order)})[0], y.index_select(2, order)));
}

TEST_P(Vocabulary, GatedEqualsAutogradWithEveryActivation) {
  for (const std::string activation : {"silu", "gelu", "gelu_tanh", "relu"})
    for (const bool gate_learns : {true, false})
      for (const bool up_learns : {true, false}) {
        if (!gate_learns && !up_learns) continue;
        SCOPED_TRACE(activation);
        Bench b;
        auto* layer = b.layer(dtype(), "gated", {{"activation", activation}});
        const at::Tensor gate = numbers({3, 5, 12}, dtype(), gate_learns), up = numbers({3, 5, 12}, dtype(), up_learns),
                         g = numbers({3, 5, 12}, dtype()), gate0 = leaf(gate, gate_learns), up0 = leaf(up, up_learns);
        const at::Tensor acted = activation == "silu"   ? at::silu(gate0)
                                 : activation == "relu" ? at::relu(gate0)
                                                        : at::gelu(gate0, activation == "gelu" ? "none" : "tanh");
        const at::Tensor y0 = acted * up0;
        y0.backward(g);
        const at::Tensor y = b.call(layer, {gate, up})[0];
        b.backward({y}, {g});
        EXPECT_TRUE(bitwise(y, y0));
        EXPECT_TRUE(bitwise(gate.grad(), gate0.grad()));
        EXPECT_TRUE(bitwise(up.grad(), up0.grad()));
      }
}

TEST_P(Vocabulary, AGatedMlpIsItsThreeLinears) {
  auto* layer = bench.layer(dtype(), "mlp",
                            {{"up", "up_proj"},
                             {"down", "down_proj"},
                             {"gate", "gate_proj"},
                             {"width", 16},
                             {"inner", 24},
                             {"activation", "silu"},
                             {"bias", false}},
                            {}, "h.0.mlp");
  const at::Tensor x = numbers({10, 16}, dtype(), true), g = numbers({10, 16}, dtype()), x0 = leaf(x);
  const auto w = [&](const char* name) { return bench.learning("h.0.mlp." + std::string(name) + ".weight"); };
  const at::Tensor gate = w("gate_proj"), up = w("up_proj"), down = w("down_proj");
  const at::Tensor y0 = at::linear(at::silu(at::linear(x0, gate)) * at::linear(x0, up), down);
  y0.backward(g);
  const at::Tensor y = bench.call(layer, {x})[0];
  bench.backward({y}, {g});
  EXPECT_TRUE(bitwise(y, y0));
  EXPECT_LT(apart(x.grad(), x0.grad()), dtype() == at::kFloat ? 1e-6 : 1e-14);
  EXPECT_TRUE(bitwise(bench.grad("h.0.mlp.gate_proj.weight"), gate.grad()));
  EXPECT_TRUE(bitwise(bench.grad("h.0.mlp.up_proj.weight"), up.grad()));
  EXPECT_TRUE(bitwise(bench.grad("h.0.mlp.down_proj.weight"), down.grad()));
}

// Packed or not, with rope or not, and heads that share keys.
TEST_P(Vocabulary, SelfAttentionIsItsLinearsAndAttention) {
  constexpr int64_t B = 2, T = 6, H = 4, D = 8, W = 20;
  struct Form {
    bool packed, rope;
    int64_t kv_heads;
  };
  for (const Form f : {Form{true, false, H}, Form{true, true, H}, Form{false, false, H}, Form{false, true, 2}}) {
    SCOPED_TRACE(::testing::Message() << f.packed << f.rope << f.kv_heads);
    Bench b({"operators.aten", "attention.flash"});
    std::vector<Attr> attrs = {{"width", W},     {"heads", H}, {"kv_heads", f.kv_heads},      {"head_dim", D},
                               {"causal", true}, {"out", "o"}, {"theta", f.rope ? 1e4 : 0.0}, {"mask", "keys"}};
    if (f.packed) attrs.push_back({"qkv", "qkv"});
    auto* layer = b.layer(dtype(), "self_attention", attrs);
    const at::Tensor x = numbers({B, T, W}, dtype(), true), g = numbers({B, T, W}, dtype()), x0 = leaf(x);
    const at::Tensor seen = at::ones({B, T}, at::kBool);
    seen[1][0] = false;
    const auto linear = [&](const at::Tensor& of, const char* name) {
      return at::linear(of, b.value(std::string("it.") + name + ".weight"),
                        b.value(std::string("it.") + name + ".bias"));
    };
    const auto heads = [&](const at::Tensor& t, int64_t n) { return t.view({B, T, n, D}); };
    std::vector<at::Tensor> qkv;
    if (f.packed) qkv = at::split(linear(x0, "qkv"), H * D, 2);
    else qkv = {linear(x0, "q"), linear(x0, "k"), linear(x0, "v")};
    at::Tensor q = heads(qkv[0], H), k = heads(qkv[1], f.kv_heads), v = heads(qkv[2], f.kv_heads);
    if (f.rope) q = rotated(q, at::arange(T), 1e4), k = rotated(k, at::arange(T), 1e4);
    const auto spread = [&](const at::Tensor& t) { return t.transpose(1, 2).repeat_interleave(H / f.kv_heads, 1); };
    const at::Tensor allowed = at::ones({T, T}, at::kBool).tril().logical_and(seen.view({B, 1, 1, T}));
    const at::Tensor attended = at::scaled_dot_product_attention(q.transpose(1, 2), spread(k), spread(v),
                                                                 allowed.logical_or(at::eye(T, at::kBool)));
    const at::Tensor y0 = linear(attended.transpose(1, 2).reshape({B, T, H * D}), "o");
    y0.backward(g);
    const at::Tensor y = b.call(layer, {x, at::arange(T), seen})[0];
    b.backward({y}, {g});
    const double near = dtype() == at::kFloat ? 3e-6 : 1e-13;
    // The first position of the second sample sees nothing: what stands there is nobody's.
    EXPECT_LT(apart(y[0], y0[0]), near);
    EXPECT_LT(apart(y[1].slice(0, 1), y0[1].slice(0, 1)), near);
    EXPECT_LT(apart(x.grad()[0], x0.grad()[0]), near);
  }
}

TEST_P(Vocabulary, EmbeddingNormAddsItsTablesAndNormsTheSum) {
  for (const bool typed : {true, false}) {
    Bench b;
    std::vector<Attr> attrs = {{"vocab", 30}, {"positions", 9}, {"width", 16}, {"eps", 1e-12}, {"word", "w"}};
    if (typed) attrs.push_back({"types", 2});
    auto* layer = b.layer(dtype(), "embedding_norm", attrs);
    const at::Tensor ids = at::randint(30, {4, 9}, at::kLong), types = at::randint(2, {4, 9}, at::kLong),
                     g = numbers({4, 9, 16}, dtype());
    const at::Tensor w0 = b.learning("it.w.weight"), p0 = b.learning("it.position.weight"),
                     t0 = typed ? b.learning("it.type.weight") : at::Tensor();
    at::Tensor sum0 = at::embedding(w0, ids);
    if (typed) sum0 = sum0 + at::embedding(t0, types);
    sum0 = sum0 + at::embedding(p0, at::arange(9));
    const at::Tensor y0 = at::layer_norm(sum0, {16}, b.value("it.norm.weight"), b.value("it.norm.bias"), 1e-12);
    y0.backward(g);
    const auto out = b.call(layer, {ids, at::arange(9), typed ? types : none}, 2);
    b.backward({out[0]}, {g});
    EXPECT_TRUE(bitwise(out[0], y0));
    EXPECT_TRUE(bitwise(out[1], sum0));
    EXPECT_TRUE(bitwise(b.grad("it.w.weight"), w0.grad()));
    EXPECT_LT(apart(b.grad("it.position.weight"), p0.grad()), dtype() == at::kFloat ? 1e-6 : 1e-14);
    EXPECT_EQ(b.get().declaration().find("it.type.weight") != nullptr, typed);
  }
}

at::Tensor smoothed(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, -100, smoothing);
}

TEST_P(Vocabulary, LossIsTheCrossEntropyWithSmoothing) {
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    Bench b;
    auto* layer = b.layer(dtype(), "loss", {{"smoothing", smoothing}});
    const at::Tensor logits = numbers({2, 5, 7}, dtype(), true), logits0 = leaf(logits),
                     before = logits.detach().clone();
    const at::Tensor labels = at::randint(7, {2, 5}, at::kLong), g = at::scalar_tensor(0.37, dtype());
    labels[1][2] = -100;
    const at::Tensor loss0 = smoothed(logits0.view({-1, 7}), labels.view(-1), smoothing);
    loss0.backward(g);
    const at::Tensor loss = b.call(layer, {logits, labels})[0];
    b.backward({loss}, {g});
    const double near = dtype() == at::kFloat ? 1e-6 : 1e-14;
    EXPECT_LT(apart(loss, loss0), near);
    EXPECT_LT(apart(logits.grad(), logits0.grad()), near);
    EXPECT_TRUE(bitwise(logits.detach(), before));
  }
}

TEST_P(Vocabulary, HeadLossMayHaveABiasAndSmoothing) {
  auto* layer = bench.layer(dtype(), "head_loss", {{"vocab", 51}, {"width", 16}, {"bias", true}, {"smoothing", 0.2}});
  const at::Tensor x = numbers({2, 7, 16}, dtype(), true), x0 = leaf(x), w0 = bench.learning("it.weight"),
                   b0 = bench.learning("it.bias");
  const at::Tensor labels = at::randint(51, {2, 7}, at::kLong);
  labels[0][3] = -100;
  const at::Tensor logits0 = at::linear(x0, w0, b0), loss0 = smoothed(logits0.view({-1, 51}), labels.view(-1), 0.2);
  loss0.backward();
  const auto out = bench.call(layer, {x, labels}, 2, {.want = MORTISE_WANT_LOGITS});
  bench.backward({out[0]}, {at::ones({}, dtype())});
  const double near = dtype() == at::kFloat ? 1e-6 : 1e-14;
  EXPECT_TRUE(bitwise(out[1], logits0));
  EXPECT_LT(apart(out[0], loss0), near);
  EXPECT_LT(apart(x.grad(), x0.grad()), near);
  EXPECT_LT(apart(bench.grad("it.weight"), w0.grad()), near);
  EXPECT_LT(apart(bench.grad("it.bias"), b0.grad()), near);
}

}  // namespace
}  // namespace mortise::testing
