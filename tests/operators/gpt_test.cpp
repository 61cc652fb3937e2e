// model.gpt against GPT-2 written out in plain ATen: names, shapes, loss and every gradient.
#include "core/host/handle.hpp"
#include "mortise/loop.h"
#include "tests/operators/bench.hpp"

namespace mortise::testing {
namespace {

constexpr int64_t kLayers = 3, kHeads = 2, kWidth = 16, kContext = 12, kVocabulary = 40;

using Values = std::map<std::string, Value>;
Values small(double dropout = 0) {
  return {{"layers", {kLayers, {}}},
          {"heads", {kHeads, {}}},
          {"width", {kWidth, {}}},
          {"context", {kContext, {}}},
          {"dropout", {dropout, {}}}};
}

// The terms of the loss, as the model gives them to the loop.
Tensors terms;
const mortise_loop_api kLoop = {
    .struct_size = sizeof(mortise_loop_api),
    .term =
        [](mortise_host*, mortise_str name, mortise_tensor* sum, mortise_str unit, double weight) noexcept {
          if (view(name) == "loss" && view(unit) == "tokens" && weight == 1) terms.push_back(share(sum));
          return mortise_status{MORTISE_OK};
        },
};

// Calls in a graph retain the batch, so it may outlive this.
struct Batch {
  Batch(int64_t rows, int64_t length, bool labelled = true, bool positioned = false) {
    ids = random_ints({rows, length}, kVocabulary, 1);
    b->fields.emplace_back("input_ids", ids);
    if (labelled) {
      labels = random_ints({rows, length}, kVocabulary, 2);
      labels[0][0] = -100;
      b->fields.emplace_back("labels", labels);
    }
    if (positioned) {
      positions = random_ints({rows, length}, kContext, 3);
      b->fields.emplace_back("positions", positions);
    }
  }
  ~Batch() { release(b); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  at::Tensor ids, labels, positions;
  mortise_batch* b = new mortise_batch;
};

struct Model : Bench {
  explicit Model(const char* attention, const Values& values = small(),
                 std::map<std::string, int64_t> known = {{"vocabulary", kVocabulary}})
      : Bench({"operators.aten", attention}) {
    get().register_table("mortise.loop/0", &kLoop);
    load(plugin("model.gpt"), values);
    facts() = std::move(known);
    declare();
  }
  Tensors run(const Batch& batch, uint32_t mode = MORTISE_TRAIN) {
    terms.clear();
    pass = {.mode = mode, .flags = mode == MORTISE_TRAIN ? uint32_t{MORTISE_GRAD} : 0, .batch = batch.b};
    Tensors results;
    forward([&](Call& c) {
      results = c.model({}, 2);
      return results[0];
    });
    return results;
  }
};

// GPT-2 as it is written everywhere.
struct Gpt2 {
  std::map<std::string, at::Tensor> w;
  at::Tensor norm(const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {kWidth}, w.at(name + ".weight"), w.at(name + ".bias"), 1e-5);
  }
  at::Tensor product(const at::Tensor& x, const std::string& name) {
    const at::Tensor& weight = w.at(name + ".weight");
    std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
    sizes.back() = weight.size(1);
    return at::addmm(w.at(name + ".bias"), x.reshape({-1, x.size(-1)}), weight).view(sizes);
  }
  static at::Tensor attention(const at::Tensor& qkv) {
    const auto parts = qkv.view({qkv.size(0), qkv.size(1), 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true)
        .transpose(1, 2)
        .reshape({qkv.size(0), qkv.size(1), kWidth});
  }
  at::Tensor logits(const Batch& batch) {
    const at::Tensor positions = batch.positions.defined() ? batch.positions : at::arange(batch.ids.size(1), at::kLong);
    at::Tensor x = at::embedding(w.at("wte.weight"), batch.ids) + at::embedding(w.at("wpe.weight"), positions);
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string h = "h." + std::to_string(i);
      x = x + product(attention(product(norm(x, h + ".ln_1"), h + ".attn.c_attn")), h + ".attn.c_proj");
      x = x + product(at::gelu(product(norm(x, h + ".ln_2"), h + ".mlp.c_fc"), "tanh"), h + ".mlp.c_proj");
    }
    return at::linear(norm(x, "ln_f"), w.at("wte.weight"));
  }
  at::Tensor loss(const Batch& batch) {
    return at::nll_loss(at::log_softmax(logits(batch).view({-1, kVocabulary}), -1), batch.labels.view(-1), {},
                        at::Reduction::Sum, -100);
  }
};

class Gpt : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void compare(const Batch& batch) {
    Model model("attention.flash");
    model.fill(GetParam());
    Gpt2 reference{model.leaves()};
    const at::Tensor loss0 = reference.loss(batch);
    loss0.backward();
    // Everything has ATen's bits but the loss, so the gradients begin with the difference of its (operators_test).
    const double near = GetParam() == at::kFloat ? 2e-6 : 2e-14;
    const at::Tensor sum = model.run(batch)[0];
    ASSERT_EQ(terms.size(), 1u);
    EXPECT_TRUE(bitwise(terms[0], sum));
    model.backward(sum);
    EXPECT_LT(apart(sum, loss0), near);
    for (const auto& [name, tensor] : reference.w) EXPECT_LT(apart(model.grad(name), tensor.grad()), near) << name;
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Gpt, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& it) { return at::toString(it.param); });

TEST_P(Gpt, EqualsGpt2WrittenOut) { compare(Batch(3, 9)); }
TEST_P(Gpt, FillsItsContext) { compare(Batch(2, kContext)); }
TEST_P(Gpt, TakesPositionsFromTheBatch) { compare(Batch(2, 7, true, true)); }

TEST_P(Gpt, WithoutLabelsThereAreOnlyLogits) {
  Model model("attention.flash");
  model.fill(GetParam());
  const Batch batch(2, 5, false);
  const Tensors out = model.run(batch, MORTISE_SAMPLE);
  EXPECT_FALSE(out[0].defined());
  EXPECT_TRUE(terms.empty());
  EXPECT_TRUE(bitwise(out[1], Gpt2{model.leaves()}.logits(batch)));
  EXPECT_FALSE(out[1].requires_grad());
}

TEST(GptDeclared, HasTheNamesAndShapesOfTheCheckpointOnTheHub) {
  Model model("attention.flash");
  const std::map<std::string, std::vector<int64_t>> block = {{"ln_1.weight", {kWidth}},
                                                             {"ln_1.bias", {kWidth}},
                                                             {"attn.c_attn.weight", {kWidth, 3 * kWidth}},
                                                             {"attn.c_attn.bias", {3 * kWidth}},
                                                             {"attn.c_proj.weight", {kWidth, kWidth}},
                                                             {"attn.c_proj.bias", {kWidth}},
                                                             {"ln_2.weight", {kWidth}},
                                                             {"ln_2.bias", {kWidth}},
                                                             {"mlp.c_fc.weight", {kWidth, 4 * kWidth}},
                                                             {"mlp.c_fc.bias", {4 * kWidth}},
                                                             {"mlp.c_proj.weight", {4 * kWidth, kWidth}},
                                                             {"mlp.c_proj.bias", {kWidth}}};
  std::map<std::string, std::vector<int64_t>> expected = {{"wte.weight", {kVocabulary, kWidth}},
                                                          {"wpe.weight", {kContext, kWidth}},
                                                          {"ln_f.weight", {kWidth}},
                                                          {"ln_f.bias", {kWidth}}};
  for (int64_t i = 0; i < kLayers; ++i)
    for (const auto& [name, sizes] : block) expected["h." + std::to_string(i) + "." + name] = sizes;
  std::map<std::string, std::vector<int64_t>> declared;
  for (const auto& p : model.get().declaration().params) declared[p.name] = p.sizes;
  EXPECT_EQ(declared, expected);
  EXPECT_EQ(model.param("lm_head.weight"), model.param("wte.weight"));
  EXPECT_EQ(model.param("h.0.ln_1.weight")->role, "norm");
  EXPECT_EQ(model.param("h.0.attn.c_attn.bias")->role, "vector");
  EXPECT_EQ(model.param("wpe.weight")->role, "embedding");
}

TEST(GptDeclared, StartsAsGpt2Does) {
  Model model("attention.flash");
  const auto scale = [&](const char* name) { return model.param(name)->init_scale; };
  EXPECT_DOUBLE_EQ(scale("wte.weight"), 0.02);
  EXPECT_DOUBLE_EQ(scale("h.1.attn.c_attn.weight"), 0.02);
  EXPECT_DOUBLE_EQ(scale("h.1.attn.c_proj.weight"), 0.02 / std::sqrt(2.0 * kLayers));
  EXPECT_DOUBLE_EQ(scale("h.1.mlp.c_proj.weight"), 0.02 / std::sqrt(2.0 * kLayers));
  EXPECT_DOUBLE_EQ(scale("h.1.ln_2.weight"), 1.0);
  EXPECT_DOUBLE_EQ(scale("h.1.mlp.c_fc.bias"), 0.0);
}

TEST(GptDropout, ActsInTrainingOnlyAndByThePlaceInTheRandomStream) {
  Model model("attention.math", small(0.2));
  model.fill(at::kDouble);
  const Batch batch(2, 8);
  const auto loss = [&](uint32_t mode) { return model.run(batch, mode)[0].item<double>(); };
  EXPECT_NEAR(loss(MORTISE_EVAL), Gpt2{model.leaves()}.loss(batch).item<double>(), 1e-9);
  const double first = loss(MORTISE_TRAIN);
  EXPECT_NE(first, loss(MORTISE_EVAL));
  EXPECT_EQ(first, loss(MORTISE_TRAIN));
  model.begin_step();
  EXPECT_NE(first, loss(MORTISE_TRAIN));
}

// Differences of the loss along a random direction of a weight, in fp64; the place in the random stream stays the same.
TEST(GptDropout, GradientsAreThoseOfTheLossThatItGave) {
  Model model("attention.math", small(0.2));
  model.fill(at::kDouble);
  const Batch batch(2, 8);
  model.backward(model.run(batch)[0]);
  for (const char* name : {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.1.attn.c_attn.weight",
                           "h.1.attn.c_proj.bias", "h.2.mlp.c_fc.weight", "ln_f.bias"}) {
    const at::Tensor value = model.value(name), along = numbers(value.sizes(), at::kDouble);
    const double by_hand = (model.grad(name) * along).sum().item<double>(), step = 1e-6;
    value.add_(along, step);
    const double above = model.run(batch)[0].item<double>();
    value.sub_(along, 2 * step);
    const double below = model.run(batch)[0].item<double>();
    value.add_(along, step);
    EXPECT_NEAR((above - below) / (2 * step), by_hand, 1e-6 * (1 + std::abs(by_hand))) << name;
  }
}

// ---- what it refuses ----

std::string refusal(Values changed, std::map<std::string, int64_t> known) {
  Values values = small();
  for (auto& [key, value] : changed) values[key] = value;
  return thrown([&] { Model("attention.flash", values, std::move(known)); }).text;
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(GptRefusals, HeadsThatDoNotDivideTheWidth) {
  const std::string text = refusal({{"heads", {int64_t{3}, {}}}}, {{"vocabulary", kVocabulary}});
  EXPECT_TRUE(holds(text, "3 heads do not divide a width of 16")) << text;
}

TEST(GptRefusals, ASequenceLongerThanItsContext) {
  const std::string text = refusal({}, {{"vocabulary", kVocabulary}, {"sequence_length", kContext + 1}});
  EXPECT_TRUE(holds(text, "a sequence of 13 is longer than a context of 12")) << text;
  Model model("attention.flash");
  const std::string late = thrown([&] { model.run(Batch(1, kContext + 1)); }).text;
  EXPECT_TRUE(holds(late, "a sequence of 13 is longer than the model's context of 12")) << late;
}

TEST(GptRefusals, AVocabularyThatNobodyKnowsOrThatIsTooSmall) {
  const std::string unknown = refusal({}, {}),
                    little = refusal({{"vocabulary", {int64_t{40}, {}}}}, {{"vocabulary", 41}});
  EXPECT_TRUE(holds(unknown, "neither a tokenizer nor the data says how large the vocabulary is")) << unknown;
  EXPECT_TRUE(holds(little, "the data has ids up to 40")) << little;
}

}  // namespace
}  // namespace mortise::testing
