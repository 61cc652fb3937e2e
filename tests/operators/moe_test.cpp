// layer.moe against a loop over experts in plain tensors, and its terms inside a block that is checkpointed.
#include "tests/operators/bench.hpp"

namespace mortise::testing {
namespace {

constexpr int64_t kWidth = 8, kInner = 16;

struct Shape {
  int64_t experts = 4, top_k = 2;
  double capacity_factor = 0, jitter = 0, balance = 0.5, z_loss = 0.25;
  std::string products = "each";
};

struct MoeBench : Bench {
  explicit MoeBench(const Shape& s, bool checkpointed = false) {
    load(plugin("layer.moe"),
         {{"experts", {s.experts, {}}},
          {"top_k", {s.top_k, {}}},
          {"capacity_factor", {s.capacity_factor, {}}},
          {"jitter", {s.jitter, {}}},
          {"balance", {s.balance, {}}},
          {"z_loss", {s.z_loss, {}}},
          {"products", {s.products, {}}}},
         "it");
    if (checkpointed) load(plugin("activation.checkpointing"), {{"keep", texts({})}});
  }
  // Gated as Llama's, else as GPT-2's.
  mortise_layer* mlp(bool gated = false) {
    std::vector<Attr> attrs = {{"width", kWidth}, {"inner", kInner}};
    if (gated) attrs.insert(attrs.end(), {{"gate", "gate"}, {"activation", "silu"}});
    else attrs.push_back({"layout", "in_out"});
    return layer(at::kFloat, "mlp", attrs);
  }
  std::map<std::string, at::Tensor> learning_all() {
    std::map<std::string, at::Tensor> all;
    for (const auto& p : get().declaration().params) all[p.name] = leaf(value(p.name));
    return all;
  }
};

using Leaves = std::map<std::string, at::Tensor>;

constexpr const char* kProducts[] = {"each", "grouped"};

// Token by token and expert by expert; `padding`: of each token whether it is some; none: no token is.
at::Tensor plain(const Shape& s, const at::Tensor& x, Leaves& p, bool gated, const std::vector<bool>& padding,
                 at::Tensor* terms) {
  const at::Tensor scores = at::linear(x, p["it.router.weight"]).to(at::promote_types(x.scalar_type(), at::kFloat));
  const at::Tensor prob = at::softmax(scores, 1);
  const auto [best, index] = at::topk(prob, s.top_k, 1);
  const int64_t n = x.size(0);
  const auto is_padding = [&](int64_t t) { return !padding.empty() && padding[static_cast<size_t>(t)]; };
  int64_t tokens = 0;
  for (int64_t t = 0; t < n; ++t) tokens += is_padding(t) ? 0 : 1;
  const double all = static_cast<double>(tokens * s.top_k), experts = static_cast<double>(s.experts);
  const int64_t capacity = std::max<int64_t>(std::llround(std::ceil(s.capacity_factor * (all / experts))), 1);
  std::vector<int64_t> load(static_cast<size_t>(s.experts));
  std::vector<at::Tensor> rows(static_cast<size_t>(n), at::zeros({kWidth}, x.options()));
  for (int64_t k = 0; k < s.top_k; ++k)
    for (int64_t t = 0; t < n; ++t) {
      const auto e = static_cast<size_t>(index[t][k].item<int64_t>());
      if (is_padding(t) || (++load[e] > capacity && s.capacity_factor > 0)) continue;
      const std::string name = "it.experts." + std::to_string(e);
      const auto linear = [&](const at::Tensor& v, const std::string& part) {
        const at::Tensor& w = p[name + part + ".weight"];
        return at::linear(v, gated ? w : w.t(), p[name + part + ".bias"]);
      };
      at::Tensor h = linear(x[t], ".up");
      h = gated ? at::silu(linear(x[t], ".gate")) * h : at::gelu(h);
      const at::Tensor y = linear(h, ".down");
      const at::Tensor weight = s.top_k == 1 ? best[t][k] : best[t][k] / best[t].sum();
      rows[static_cast<size_t>(t)] = rows[static_cast<size_t>(t)] + y * weight.to(y.scalar_type());
    }
  at::Tensor balance = at::zeros({}, at::kFloat), z = at::zeros({}, at::kFloat);
  for (int64_t t = 0; t < n; ++t) {
    if (is_padding(t)) continue;
    for (int64_t e = 0; e < s.experts; ++e)
      balance = balance + prob[t][e] * (static_cast<double>(load[static_cast<size_t>(e)]) / all);
    z = z + at::logsumexp(scores[t], 0).pow(2);
  }
  *terms = (s.balance * experts * balance + s.z_loss * z) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return at::stack(rows);
}

// What a batch of 3 × 5 tokens says of padding, in one of its fields.
at::Tensor told_in(const std::string& field, const std::vector<bool>& padding) {
  at::Tensor numbers = at::empty({15}, at::kLong);
  for (int64_t t = 0; t < 15; ++t) {
    const bool is_padding = padding[static_cast<size_t>(t)];
    if (field == "attention_mask") numbers[t] = is_padding ? 0 : 1;
    else if (field == "segments") numbers[t] = is_padding ? -1 : t % 5 / 2;
    else numbers[t] = is_padding ? 0 : t % 5;  // positions
  }
  return numbers.reshape({3, 5});
}

void expect_plain(const Shape& s, bool gated, const std::vector<bool>& padding = {},
                  const std::string& field = "attention_mask") {
  MoeBench b(s);
  auto* layer = b.mlp(gated);
  const at::Tensor x = numbers({3, 5, kWidth}, at::kFloat, true), g = numbers({3, 5, kWidth}, at::kFloat);
  Leaves p = b.learning_all();
  const at::Tensor x0 = leaf(x);
  at::Tensor terms;
  const at::Tensor y0 = plain(s, x0.reshape({-1, kWidth}), p, gated, padding, &terms).reshape(x.sizes());
  ((y0 * g).sum() + terms).backward();
  mortise_batch batch;
  if (!padding.empty()) batch.fields.emplace_back(field, told_in(field, padding));
  Pass how;
  how.batch = &batch;
  const at::Tensor y = b.call(layer, {x}, 1, how)[0];
  b.backward({y}, {g});
  // fp32, sums of up to 15 x 10 numbers of size 1 in another order.
  EXPECT_LT(apart(y, y0), 1e-6);
  EXPECT_LT(apart(x.grad(), x0.grad()), 1e-6);
  for (const auto& [name, leaf] : p) {
    const at::Tensor own = b.grad(name), other = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
    ASSERT_TRUE(own.defined()) << name << " also of an expert that no token took";
    EXPECT_LT((own - other).norm().item<double>(), 1e-6 * std::max(1.0, other.norm().item<double>())) << name;
  }
}

TEST(Moe, EqualsALoopOverTokensAndExperts) {
  for (const char* products : kProducts) {
    for (const int64_t top_k : {1, 2, 4})
      for (const bool gated : {false, true}) {
        SCOPED_TRACE(::testing::Message() << products << ", top_k " << top_k << (gated ? " gated" : ""));
        expect_plain({.top_k = top_k, .products = products}, gated);
      }
    // More experts than tokens: some have none.
    expect_plain({.experts = 40, .top_k = 1, .products = products}, false);
  }
}

// 15 tokens, 2 of 4 experts each: 7.5 are an even share, half of that rounds up to 4.
TEST(Moe, DropsSecondChoicesBeyondAnExpertsCapacityFirst) {
  for (const int64_t top_k : {1, 2, 4})
    for (const double factor : {0.01, 0.5, 1.3, 1000.0}) {
      SCOPED_TRACE(::testing::Message() << "top_k " << top_k << ", capacity_factor " << factor);
      expect_plain({.top_k = top_k, .capacity_factor = factor}, top_k == 2);
    }
  for (const char* products : kProducts) {
    expect_plain({.capacity_factor = 0.5, .products = products}, false);
    // One row each, most of them nobody's.
    expect_plain({.experts = 40, .top_k = 1, .capacity_factor = 1.0, .products = products}, false);
  }
}

TEST(Moe, PaddingTakesNoExpertAndNoPartOfACapacity) {
  const struct NewMemoryIsNaN {
    NewMemoryIsNaN() { at::globalContext().setDeterministicAlgorithms(true, true); }
    ~NewMemoryIsNaN() { at::globalContext().setDeterministicAlgorithms(false, false); }
  } until_the_end;
  std::vector<bool> some(15), all(15, true);
  for (const size_t t : {0u, 3u, 4u, 9u, 13u, 14u}) some[t] = true;
  for (const double factor : {0.0, 0.5, 1.1, 1000.0}) {
    SCOPED_TRACE(::testing::Message() << "capacity_factor " << factor);
    for (const char* products : kProducts) expect_plain({.capacity_factor = factor, .products = products}, false, some);
    expect_plain({.top_k = 4, .capacity_factor = factor, .products = "grouped"}, true, some);
  }
  for (const Shape& s : {Shape{}, Shape{.capacity_factor = 0.5}, Shape{.products = "grouped"}}) {
    MoeBench b(s);
    auto* layer = b.mlp();
    mortise_batch batch;
    batch.fields.emplace_back("attention_mask", at::zeros({3, 5}, at::kLong));
    Pass how;
    how.batch = &batch;
    const at::Tensor x = numbers({3, 5, kWidth}, at::kFloat, true), y = b.call(layer, {x}, 1, how)[0];
    b.backward({y}, {at::ones_like(y)});
    EXPECT_EQ(y.abs().max().item<float>(), 0);
    EXPECT_EQ(x.grad().abs().max().item<float>(), 0) << "nor has it a balance";
  }
}

TEST(Moe, PaddingIsWhatSegmentsOrPositionsSay) {
  std::vector<bool> some(15);
  for (const size_t t : {3u, 4u, 9u, 13u}) some[t] = true;  // a row's first token has the position 0, too
  for (const char* field : {"segments", "positions"}) expect_plain({}, false, some, field);
}

// The rows of an expert that nobody took are zeros, and what it makes of them reaches nobody, be it NaN: neither where
// there are rows enough nor where most choices have none.
TEST(Moe, ARowOfNobodyReachesNobodyAndHasNoGradient) {
  for (const Shape& s : {Shape{.experts = 40, .capacity_factor = 4.0}, Shape{.experts = 40, .capacity_factor = 1.0},
                         Shape{.experts = 40, .products = "grouped"}}) {
    SCOPED_TRACE(::testing::Message() << s.products << ", capacity_factor " << s.capacity_factor);
    MoeBench b(s);
    auto* layer = b.mlp();
    const at::Tensor x = numbers({15, kWidth}, at::kFloat, true), g = numbers({15, kWidth}, at::kFloat);
    const auto taken = std::get<1>(at::topk(at::linear(x, b.value("it.router.weight")), s.top_k, 1)).reshape({-1});
    std::vector<std::string> untaken;
    for (int64_t e = 0; e < s.experts; ++e)
      if (!taken.eq(e).any().item<bool>()) untaken.push_back("it.experts." + std::to_string(e) + ".down.");
    Leaves p = b.learning_all();
    for (const std::string& name : untaken) b.value(name + "bias").fill_(std::nan(""));
    const at::Tensor y = b.call(layer, {x})[0];
    b.backward({y}, {g});
    const at::Tensor x0 = leaf(x);
    at::Tensor terms;
    const at::Tensor y0 = plain(s, x0, p, false, {}, &terms);
    ((y0 * g).sum() + terms).backward();
    EXPECT_LT(apart(y, y0), 1e-6);
    EXPECT_LT(apart(x.grad(), x0.grad()), 1e-6);
    for (const auto& [name, value] : p) EXPECT_TRUE(b.grad(name).isfinite().all().item<bool>()) << name;
    for (const std::string& name : untaken)
      for (const char* part : {"bias", "weight"})
        EXPECT_EQ(b.grad(name + part).abs().max().item<float>(), 0) << "exactly: " << name << part;
  }
}

TEST(Moe, ARouterThatIsFrozenEvensNothingOut) {
  const auto gradient = [](double balance, double z_loss) {
    MoeBench b({.balance = balance, .z_loss = z_loss});
    auto* layer = b.layer(at::kFloat, "mlp", {{"width", kWidth}, {"inner", kInner}}, {"it.router.weight"});
    for (auto& s : b.get().parameters().all()) s.master.copy_(random(s.master.sizes(), s.declared->index + 1));
    const at::Tensor x = random({15, kWidth}, 3).requires_grad_();
    const at::Tensor y = b.call(layer, {x})[0];
    b.backward({y}, {random({15, kWidth}, 4)});
    return x.grad();
  };
  EXPECT_TRUE(bitwise(gradient(0.5, 0.25), gradient(0, 0)));
}

TEST(Moe, DropsAndJittersNothingInAnEvaluation) {
  const auto result = [](double capacity_factor, double jitter) {
    MoeBench b({.capacity_factor = capacity_factor, .jitter = jitter});
    auto* layer = b.mlp();
    for (auto& s : b.get().parameters().all()) s.master.copy_(random(s.master.sizes(), s.declared->index + 1));
    Pass eval;
    eval.mode = MORTISE_EVAL;
    eval.flags = 0;
    return b.call(layer, {random({15, kWidth}, 3)}, 1, eval)[0];
  };
  EXPECT_TRUE(bitwise(result(0.5, 0.1), result(0, 0)));
}

struct Outcome {
  at::Tensor y;
  std::map<std::string, at::Tensor> grads;
};
// Two blocks of two layers, in several micro-batches.
Outcome blocks(const Shape& s, bool checkpointed) {
  MoeBench b(s, checkpointed);
  std::vector<mortise_layer*> layers;
  b.declare([&](Builder& builder) {
    for (const char* path : {"h.0", "h.1"}) {
      builder.segment(path, MORTISE_BLOCK, [&layers, i = layers.size()](Call& c) {
        c.give(0, c.arg(0) + c.layer(layers[i], {at::tanh(c.arg(0))})[0]);
      });
      layers.push_back(builder.layer("mlp", path == std::string("h.0") ? "it" : "plain",
                                     {{"width", kWidth}, {"inner", kInner}, {"init_up", 0.5}, {"init_down", 0.5}}));
    }
  });
  Outcome o;
  b.step(2, [&](Call& c) {
    o.y = c.model({random({2, 9, kWidth}, 11)})[0];
    return o.y.pow(2).sum();
  });
  for (const auto& p : b.get().declaration().params) o.grads[p.name] = b.grad(p.name);
  return o;
}

TEST(Moe, HasTheSameBitsInBlocksThatAreComputedAgain) {
  for (const Shape& s :
       {Shape{}, Shape{.top_k = 1, .capacity_factor = 1.0, .jitter = 0.1}, Shape{.products = "grouped"}}) {
    const Outcome once = blocks(s, false), again = blocks(s, true);
    EXPECT_TRUE(bitwise(once.y, again.y));
    for (const auto& [name, grad] : once.grads) EXPECT_TRUE(bitwise(grad, again.grads.at(name))) << name;
    Shape other = s;
    other.balance = 0;
    EXPECT_FALSE(bitwise(blocks(other, true).grads.at("it.router.weight"), again.grads.at("it.router.weight")))
        << "the term reaches the router in a replay";
  }
}

}  // namespace
}  // namespace mortise::testing
