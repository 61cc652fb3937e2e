// adapter.lora around the linear pair, against the formula in ATen.
#include "tests/operators/bench.hpp"

namespace mortise::testing {
namespace {

at::Tensor activated(const at::Tensor& z, const std::string& name) {
  if (name == "gelu") return at::gelu(z);
  if (name == "gelu_tanh") return at::gelu(z, "tanh");
  if (name == "silu") return at::silu(z);
  if (name == "tanh") return at::tanh(z);
  return name == "relu" ? at::relu(z) : z;
}

struct LoraBench : Bench {
  explicit LoraBench(double dropout = 0) {
    load(plugin("adapter.lora"),
         {{"rank", {int64_t{3}, {}}}, {"alpha", {6.0, {}}}, {"dropout", {dropout, {}}}, {"also", texts({})}}, "it");
  }
};

TEST(Lora, EqualsTheFormulaInBothLayoutsWithEveryActivation) {
  for (const bool in_out : {false, true})
    for (const std::string activation : {"none", "gelu", "gelu_tanh", "relu", "silu", "tanh"}) {
      SCOPED_TRACE(activation + (in_out ? " in_out" : " out_in"));
      LoraBench b;
      auto* layer =
          b.layer(at::kDouble, "linear",
                  {{"in", 8}, {"out", 12}, {"layout", in_out ? "in_out" : "out_in"}, {"activation", activation}},
                  {"it.weight", "it.bias"});
      const at::Tensor x = numbers({2, 5, 8}, at::kDouble, true), g = numbers({2, 5, 12}, at::kDouble);
      const at::Tensor x0 = leaf(x), w = b.value("it.weight"), a = leaf(b.value("it.lora_A.weight")),
                       z = leaf(b.value("it.lora_B.weight"));
      const at::Tensor base = at::linear(x0, in_out ? w.t() : w, b.value("it.bias"));
      const at::Tensor y0 = activated(base + 6.0 / 3 * at::linear(at::linear(x0, a), z), activation);
      y0.backward(g);
      const at::Tensor y = b.call(layer, {x})[0];
      b.backward({y}, {g});
      // Sums of 8 or 12 numbers of size 1 in fp64, in another order.
      EXPECT_LT(apart(y, y0), 1e-14);
      EXPECT_LT(apart(x.grad(), x0.grad()), 1e-14);
      EXPECT_LT(apart(b.grad("it.lora_A.weight"), a.grad()), 1e-14);
      EXPECT_LT(apart(b.grad("it.lora_B.weight"), z.grad()), 1e-14);
      EXPECT_FALSE(b.grad("it.weight").defined());
    }
}

TEST(Lora, DropsInputsOfTheProductInTrainingAlone) {
  LoraBench b(0.5);
  auto* layer = b.layer(at::kDouble, "linear", {{"in", 8}, {"out", 12}}, {"it.weight", "it.bias"});
  const at::Tensor x = at::ones({6, 8}, at::kDouble);
  Pass eval;
  eval.mode = MORTISE_EVAL;
  eval.flags = 0;
  const at::Tensor base = at::linear(x, b.value("it.weight"), b.value("it.bias"));
  const at::Tensor delta = 2 * at::linear(at::linear(x, b.value("it.lora_A.weight")), b.value("it.lora_B.weight"));
  EXPECT_LT(apart(b.call(layer, {x}, 1, eval)[0], base + delta), 1e-14);
  const at::Tensor dropped = b.call(layer, {x})[0] - base;
  EXPECT_GT(apart(dropped, delta), 0.01);
  EXPECT_GT(apart(dropped[0], dropped[1]), 0.01) << "each row its own";
}

TEST(Lora, IsTheModelItselfAtFirst) {
  LoraBench b;
  mortise_layer* layer = nullptr;
  b.declare([&](Builder& builder) {
    builder.segment("here");
    layer = builder.layer("linear", "it", {{"in", 64}, {"out", 12}});
  });
  b.begin_step();
  b.begin_micro(0, true);
  const at::Tensor x = numbers({5, 64}, at::kFloat), a = b.value("it.lora_A.weight");
  EXPECT_TRUE(bitwise(b.call(layer, {x})[0], at::linear(x, b.value("it.weight"), b.value("it.bias"))));
  EXPECT_LE(a.abs().max().item<double>(), 1.0 / 8) << "1 / sqrt(in)";
  EXPECT_GT(a.abs().max().item<double>(), 0.9 / 8);
}

}  // namespace
}  // namespace mortise::testing
