// What Llama declares and refuses; no LibTorch. Logits and gradients against transformers: tests/parity/models.py.
#include <gtest/gtest.h>

#include <optional>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;

namespace {

struct Llama : testing::Test {
  Llama() {
    host.set("layers", 2)
        .set("heads", 8)
        .set("kv_heads", 2)
        .set("width", 64)
        .set("inner", 160)
        .set("context", 32)
        .set("eps", 1e-6)
        .set("theta", 500.0)
        .set("attention_dropout", 0.0)
        .set("tied", false)
        .set("vocabulary", 100);
    for (const char* key : {"rope_type", "rope_factor", "rope_low", "rope_high", "rope_context"}) host.unset(key);
  }
  // Declares; the reason if it refuses.
  std::string declare() {
    try {
      plugin.emplace(host, MORTISE_PLUGIN_FILE);
      build.model(*plugin);
      return "";
    } catch (const PluginError& e) {
      return e.what();
    }
  }
  FakeHost host;
  FakeBuild build{host};
  std::optional<Plugin> plugin;
  using Attributes = std::map<std::string, std::string>;
};

TEST_F(Llama, AsksForRotaryAttentionWithSharedHeadsAndAGatedMlp) {
  ASSERT_EQ(declare(), "");
  const std::string path = "model.layers.1.";
  EXPECT_EQ(build.at(path + "self_attn").attrs, (Attributes{{"q", "q_proj"},
                                                            {"k", "k_proj"},
                                                            {"v", "v_proj"},
                                                            {"out", "o_proj"},
                                                            {"width", "64"},
                                                            {"heads", "8"},
                                                            {"kv_heads", "2"},
                                                            {"theta", "500"},
                                                            {"causal", "true"},
                                                            {"dropout", "0"},
                                                            {"mask", "none"},
                                                            {"bias", "false"}}));
  EXPECT_EQ(build.at(path + "mlp").attrs, (Attributes{{"gate", "gate_proj"},
                                                      {"up", "up_proj"},
                                                      {"down", "down_proj"},
                                                      {"width", "64"},
                                                      {"inner", "160"},
                                                      {"activation", "silu"},
                                                      {"bias", "false"}}));
}

TEST_F(Llama, NormsAreOfSquaresAndBeginWithoutAResidual) {
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("model.layers.0.input_layernorm").slot, "norm");
  for (const char* path : {"model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm", "model.norm"}) {
    EXPECT_EQ(build.at(path).slot, "residual_norm") << path;
    EXPECT_EQ(build.at(path).attrs, (Attributes{{"width", "64"}, {"eps", "1e-06"}, {"kind", "rms"}}));
  }
}

TEST_F(Llama, HasAHeadOfItsOwn) {
  ASSERT_EQ(declare(), "");
  EXPECT_FALSE(build.at("lm_head").attrs.contains("tie"));
}

TEST_F(Llama, MayHaveTheEmbeddingsHead) {
  host.set("tied", true);
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("lm_head").attrs.at("tie"), "model.embed_tokens.weight");
}

TEST_F(Llama, KeepsSamplesThatArePackedIntoOneApart) {
  build.facts["field.segments"] = 1;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("model.layers.0.self_attn").attrs.at("mask"), "segments");
}

TEST_F(Llama, AsksForScaledFrequencies) {
  host.set("rope_type", "linear").set("rope_factor", 4.0);
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("model.layers.0.self_attn").attrs.at("rope_factor"), "4");
  EXPECT_FALSE(build.at("model.layers.0.self_attn").attrs.contains("rope_context"));
}

TEST_F(Llama, AsksForTheFrequenciesOfLlama3) {
  host.set("rope_type", "llama3").set("rope_factor", 8.0).set("rope_low", 1.0).set("rope_high", 4.0);
  host.set("rope_context", 8192);
  ASSERT_EQ(declare(), "");
  const Attributes& attrs = build.at("model.layers.1.self_attn").attrs;
  EXPECT_EQ(attrs.at("rope_factor"), "8");
  EXPECT_EQ(attrs.at("rope_low"), "1");
  EXPECT_EQ(attrs.at("rope_high"), "4");
  EXPECT_EQ(attrs.at("rope_context"), "8192");
}

TEST_F(Llama, RefusesScalingsThatLackANumberOrHaveNoUseForOne) {
  host.set("rope_factor", 8.0);
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->why, "frequencies of rope_type default have none");
  host.set("rope_type", "linear").set("rope_low", 1.0);
  declare();
  EXPECT_EQ(host.blamed->why, "frequencies of rope_type linear have none");
  host.set("rope_type", "llama3").set("rope_high", 1.0);
  declare();
  EXPECT_EQ(host.blamed->why, "llama3 needs rope_context");
  host.set("rope_context", 8192);
  declare();
  EXPECT_EQ(host.blamed->why, "rope_high is not above rope_low");
}

TEST_F(Llama, RefusesHeadsThatDoNotFit) {
  host.set("kv_heads", 3);
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->why, "3 heads of keys and values do not divide 8 heads of queries");
  host.set("kv_heads", 2).set("heads", 64);
  declare();
  EXPECT_EQ(host.blamed->why, "a head of width 1 has no pairs to turn");
  host.set("heads", 7);
  declare();
  EXPECT_EQ(host.blamed->why, "7 heads do not divide a width of 64");
}

}  // namespace
