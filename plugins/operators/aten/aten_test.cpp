// What the operators declare and refuse, and dropout's bits; no LibTorch. Numbers against ATen's autograd:
// tests/operators.
#include <gtest/gtest.h>

#include "mortise/cpp/operator.hpp"
#include "mortise/testing/fake_build.hpp"
#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Operators : testing::Test {
  FakeHost host;
  FakeBuild build{host};
  Plugin plugin{host, MORTISE_PLUGIN_FILE};
  using Sizes = std::vector<int64_t>;
  using Names = std::vector<std::string>;
};

TEST_F(Operators, LinearDeclaresItsWeightInEitherLayoutWithNamedDimensions) {
  build.layer(plugin, "linear", "fc", {attr("in", 8), attr("out", 4), attr("init", 0.5)});
  build.layer(
      plugin, "linear", "h.0.attn",
      {attr("name", "h.0.attn.c_attn"), attr("in", 8), attr("out", 24), attr("layout", "in_out"), attr("bias", false)});
  EXPECT_EQ(build.params.at("fc.weight").sizes, (Sizes{4, 8}));
  EXPECT_EQ(build.params.at("fc.weight").dims, (Names{"out", "in"}));
  EXPECT_EQ(build.params.at("fc.weight").role, "matrix");
  EXPECT_EQ(build.params.at("fc.weight").scale, 0.5);
  EXPECT_EQ(build.params.at("fc.bias").role, "vector");
  EXPECT_EQ(build.params.at("h.0.attn.c_attn.weight").sizes, (Sizes{8, 24}));
  EXPECT_EQ(build.params.at("h.0.attn.c_attn.weight").dims, (Names{"in", "out"}));
  EXPECT_FALSE(build.params.contains("h.0.attn.c_attn.bias"));
}

TEST_F(Operators, LinearSaysWhichPartsOfItsOutputsItPacks) {
  build.layer(plugin, "linear", "qkv", {attr("in", 8), attr("out", 24), attr("parts", 3)});
  build.layer(plugin, "linear", "conv", {attr("in", 8), attr("out", 24), attr("layout", "in_out"), attr("parts", 3)});
  build.layer(plugin, "linear", "one", {attr("in", 8), attr("out", 24)});
  EXPECT_EQ(build.params.at("qkv.weight").parts, (Sizes{8, 8, 8}));
  EXPECT_EQ(build.params.at("qkv.weight").part_dim, 0u);
  EXPECT_EQ(build.params.at("conv.weight").parts, (Sizes{8, 8, 8}));
  EXPECT_EQ(build.params.at("conv.weight").part_dim, 1u);
  EXPECT_EQ(build.params.at("one.weight").parts, Sizes{});
  const auto refused = [&](int64_t parts) {
    EXPECT_THROW(build.layer(plugin, "linear", "odd", {attr("in", 8), attr("out", 24), attr("parts", parts)}),
                 PluginError);
    return host.error();
  };
  EXPECT_EQ(refused(5), "odd: 24 outputs are not 5 equal parts");
  EXPECT_NE(refused(0), "");
}

TEST_F(Operators, NormsBeginAsTheIdentity) {
  build.layer(plugin, "norm", "ln", {attr("width", 6)});
  build.layer(plugin, "residual_norm", "rms", {attr("width", 6), attr("kind", "rms")});
  EXPECT_EQ(build.params.at("ln.weight").scale, 1);
  EXPECT_EQ(build.params.at("ln.bias").scale, 0);
  EXPECT_EQ(build.params.at("ln.bias").role, "norm");
  EXPECT_FALSE(build.params.contains("rms.bias"));
}

TEST_F(Operators, MlpAsksForItsTwoLinearsByTheNamesOfTheModel) {
  build.layer(plugin, "mlp", "h.1.mlp",
              {attr("up", "c_fc"), attr("down", "c_proj"), attr("width", 8), attr("inner", 32),
               attr("activation", "relu"), attr("layout", "in_out"), attr("init_down", 0.01)});
  ASSERT_EQ(build.layers.size(), 2u);
  const std::map<std::string, std::string> up = {
      {"name", "h.1.mlp.c_fc"}, {"in", "8"},      {"out", "32"},   {"layout", "in_out"},
      {"activation", "relu"},   {"bias", "true"}, {"init", "0.02"}};
  const std::map<std::string, std::string> down = {
      {"name", "h.1.mlp.c_proj"}, {"in", "32"},     {"out", "8"},    {"layout", "in_out"},
      {"activation", "none"},     {"bias", "true"}, {"init", "0.01"}};
  EXPECT_EQ(build.at("h.1.mlp.c_fc").attrs, up);
  EXPECT_EQ(build.at("h.1.mlp.c_proj").attrs, down);
}

TEST_F(Operators, GroupsHaveParametersOfTheirOwnUnderTheirNumbers) {
  build.layer(plugin, "mlp", "h.1.mlp.experts",
              {attr("name", "mlp.experts.*"), attr("width", 8), attr("inner", 32), attr("groups", 2)});
  EXPECT_EQ(build.at("h.1.mlp.experts.up").attrs.at("name"), "mlp.experts.*.up");
  EXPECT_EQ(build.at("h.1.mlp.experts.up").attrs.at("groups"), "2");
  EXPECT_EQ(build.at("h.1.mlp.experts.down").attrs.at("groups"), "2");
  build.layer(plugin, "linear", "fc",
              {attr("name", "experts.*.fc"), attr("in", 8), attr("out", 16), attr("groups", 2)});
  ASSERT_EQ(build.params.size(), 4u);
  for (const char* name : {"experts.0.fc.weight", "experts.0.fc.bias", "experts.1.fc.weight", "experts.1.fc.bias"})
    EXPECT_TRUE(build.params.contains(name)) << name;
}

TEST_F(Operators, AHeadMayBeTiedToAnEmbedding) {
  build.layer(plugin, "embedding", "wte", {attr("vocab", 20), attr("width", 4)});
  build.layer(plugin, "head_loss", "lm_head",
              {attr("vocab", 20), attr("width", 4), attr("tie", build.params.at("wte.weight").handle)});
  EXPECT_TRUE(build.params.at("lm_head.weight").tied);
  EXPECT_EQ(build.params.at("wte.weight").role, "embedding");
}

TEST_F(Operators, AWordThatIsNoChoiceOrANumberThatIsMissingIsRefused) {
  const auto refusal = [&](const char* slot, std::initializer_list<mortise_attr> attrs) {
    try {
      build.layer(plugin, slot, "h.2.fc", attrs);
      return std::string();
    } catch (const PluginError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(refusal("linear", {attr("in", 4), attr("out", 4), attr("activation", "swish")}),
            "h.2.fc: there is no activation `swish`");
  EXPECT_EQ(refusal("norm", {attr("width", 4), attr("kind", "batch")}), "h.2.fc: there is no kind `batch`");
  EXPECT_EQ(refusal("linear", {attr("in", 4)}), "the layer lacks the attribute out");
  const std::string groups =
      "h.2.fc: groups need a `*` in the name, sizes that are multiples of 8, and weights that are not packed";
  const auto name = attr("name", "h.*"), two = attr("groups", 2), eight = attr("out", 8);
  EXPECT_EQ(refusal("linear", {attr("in", 8), eight, two}), groups);
  EXPECT_EQ(refusal("linear", {name, attr("in", 12), eight, two}), groups);
  EXPECT_EQ(refusal("linear", {name, attr("in", 8), eight, two, attr("parts", 2)}), groups);
  EXPECT_EQ(refusal("dropout", {attr("p", 1.5)}), "h.2.fc: a dropout of 1.500000 is not between 0 and 1");
}

TEST_F(Operators, DropoutIsRefusedInTrainingWhereItHasNoKernel) {
  const std::string refused = "dropout of operators.aten was built for the CPU only\n  fix: dropout = 0";
  constexpr uint32_t kOther = 7;  // a device of a kind that nobody knows
  for (const uint32_t device : {uint32_t{MORTISE_CPU}, uint32_t{MORTISE_CUDA}, kOther}) {
    const bool runs = device == MORTISE_CPU || (device == MORTISE_CUDA && MORTISE_HAS_CUDA);
    mortise_place place{};
    place.device = device;
    EXPECT_EQ(FakeBuild::refusal(plugin, "residual_norm", place, {attr("dropout", 0.1)}), runs ? "" : refused);
    EXPECT_EQ(FakeBuild::refusal(plugin, "dropout", place, {attr("p", 0.1)}), runs ? "" : refused);
    EXPECT_EQ(FakeBuild::refusal(plugin, "residual_norm", place, {attr("dropout", 0.0)}), "");
    EXPECT_EQ(FakeBuild::refusal(plugin, "linear", place, {}), "");
    place.mode = MORTISE_EVAL;
    EXPECT_EQ(FakeBuild::refusal(plugin, "dropout", place, {attr("p", 0.1)}), "");
  }
}

TEST_F(Operators, ALossIsRefusedWhereItHasNoKernel) {
  const std::string refused = "the cross-entropy of operators.aten was built for the CPU only\n  fix: device.cpu";
  constexpr uint32_t kOther = 7;  // a device of a kind that nobody knows
  for (const uint32_t device : {uint32_t{MORTISE_CPU}, uint32_t{MORTISE_CUDA}, kOther}) {
    const bool runs = device == MORTISE_CPU || (device == MORTISE_CUDA && MORTISE_HAS_CUDA);
    for (const char* slot : {"head_loss", "loss"}) {
      mortise_place place{};
      place.device = device;
      for (const uint32_t mode : {MORTISE_TRAIN, MORTISE_EVAL}) {
        place.mode = mode;
        EXPECT_EQ(FakeBuild::refusal(plugin, slot, place, {}), runs ? "" : refused);
      }
      place.mode = MORTISE_SAMPLE;  // without labels
      EXPECT_EQ(FakeBuild::refusal(plugin, slot, place, {}), "");
    }
  }
}

// The fake host runs pieces of a loop out of order: bits hang on the element alone. Nothing is saved, and backward
// draws them again.
TEST_F(Operators, DropoutDrawsTheBitsOfItsPlaceInBothDirections) {
  host.op("aten::contiguous", [](std::span<const mortise_value> args) { return mortise::Tensor::share(args[0].v.t); });
  constexpr int64_t n = 100'003;
  void* const layer = build.layer(plugin, "dropout", "drop", {attr("p", 0.25)});
  const auto& dropout = plugin.object<mortise_operator>("dropout");
  const mortise::Tensor x = host.tensor<float>({n}, std::vector<float>(n, 1.f));

  FakeCall call({mortise::value(x)}, 1);
  call.layer_data = layer;
  mortise_saved saved[MORTISE_MAX_SAVED];
  uint32_t n_saved = 0;
  ASSERT_EQ(dropout.forward(plugin.self(), &call, saved, &n_saved), MORTISE_OK) << host.error();
  EXPECT_EQ(n_saved, 0u);
  const auto y = host.values<float>(call.results[0].v.t);
  const mortise_philox place = mortise::random_site(&call);
  for (int64_t e = 0; e < n; ++e) {
    uint16_t bits[8];
    mortise_philox_block(&place, static_cast<uint32_t>(e / 8), bits);
    const float expected =
        bits[e % 8] >= mortise_dropout_threshold(0.25) ? static_cast<float>(mortise_dropout_scale(0.25)) : 0.f;
    ASSERT_EQ(y[static_cast<size_t>(e)], expected) << e;
  }

  mortise_tensor* const grad_out[] = {x.get()};
  mortise_tensor* grad_in[] = {nullptr};
  mortise_backward backward = {sizeof backward, 0, 1, 1, nullptr, grad_out, grad_in, 1};
  ASSERT_EQ(dropout.backward(plugin.self(), &call, &backward), MORTISE_OK) << host.error();
  EXPECT_EQ(host.values<float>(mortise::Tensor::own(grad_in[0])), y);
}

}  // namespace
