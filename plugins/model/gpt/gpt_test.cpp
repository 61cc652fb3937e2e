// What GPT-2 declares and refuses; no LibTorch. Loss and gradients against GPT-2 written out: tests/operators.
#include <gtest/gtest.h>

#include <optional>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;

namespace {

struct Gpt : testing::Test {
  Gpt() {
    host.set("layers", 2)
        .set("heads", 4)
        .set("width", 64)
        .set("context", 32)
        .set("dropout", 0.1)
        .unset("vocabulary")
        .unset("preset");
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
};

TEST_F(Gpt, DeclaresEachBlockAsASegment) {
  build.facts["vocabulary"] = 100;
  ASSERT_EQ(declare(), "");
  const std::vector<std::pair<std::string, uint32_t>> expected = {
      {"embed", 0}, {"h.0", MORTISE_BLOCK}, {"h.1", MORTISE_BLOCK}, {"head", 0}};
  EXPECT_EQ(build.segments, expected);
  EXPECT_EQ(build.at("h.1.attn").segment, "h.1");
  EXPECT_EQ(build.at("lm_head").segment, "head");
}

TEST_F(Gpt, BeginsWithANormAndAddsEveryOtherBranchTogetherWithTheNormAfterIt) {
  build.facts["vocabulary"] = 100;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("h.0.ln_1").slot, "norm");
  for (const char* path : {"h.0.ln_2", "h.1.ln_1", "h.1.ln_2", "ln_f"}) {
    EXPECT_EQ(build.at(path).slot, "residual_norm") << path;
    EXPECT_EQ(build.at(path).attrs.at("dropout"), "0.1") << path;
  }
}

TEST_F(Gpt, AsksForAttentionWithThePackedMatricesOfItsFiles) {
  build.facts["vocabulary"] = 100;
  ASSERT_EQ(declare(), "");
  const std::map<std::string, std::string> expected = {
      {"qkv", "c_attn"},  {"out", "c_proj"}, {"width", "64"},      {"heads", "4"},   {"causal", "true"},
      {"dropout", "0.1"}, {"mask", "none"},  {"layout", "in_out"}, {"init", "0.02"}, {"init_out", "0.01"}};
  EXPECT_EQ(build.at("h.1.attn").slot, "self_attention");
  EXPECT_EQ(build.at("h.1.attn").attrs, expected);
}

TEST_F(Gpt, KeepsSamplesThatArePackedIntoOneApart) {
  build.facts["vocabulary"] = 100;
  build.facts["field.segments"] = 1;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("h.1.attn").attrs.at("mask"), "segments");
}

TEST_F(Gpt, AsksForNoDropoutLayerWithoutDropout) {
  host.set("dropout", 0.0);
  build.facts["vocabulary"] = 100;
  ASSERT_EQ(declare(), "");
  for (const auto& layer : build.layers) EXPECT_NE(layer.slot, "dropout");
}

TEST_F(Gpt, TakesTheVocabularyFromTheManifestElseFromTheData) {
  build.facts["vocabulary"] = 100;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("wte").attrs.at("vocab"), "100");
  EXPECT_EQ(build.at("lm_head").attrs.at("vocab"), "100");
  EXPECT_EQ(build.at("lm_head").attrs.at("tie"), "wte.weight");
}

TEST_F(Gpt, TheManifestMayMakeTheVocabularyLarger) {
  build.facts["vocabulary"] = 100;
  host.set("vocabulary", 128);
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("wte").attrs.at("vocab"), "128");
}

TEST_F(Gpt, RefusesAVocabularyThatNobodyKnows) {
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "vocabulary");
  EXPECT_EQ(host.blamed->fix, "[tokenizer.byte], or vocabulary = 50257");
}

TEST_F(Gpt, RefusesAVocabularySmallerThanTheDatas) {
  build.facts["vocabulary"] = 100;
  host.set("vocabulary", 99);
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->why, "the data has ids up to 99, the model a vocabulary of 99");
  EXPECT_EQ(host.blamed->fix,
            "with weights: the tokenizer and the data that they were made with; without: vocabulary = 100");
}

TEST_F(Gpt, RefusesHeadsThatDoNotDivideTheWidth) {
  host.set("heads", 5);
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "heads");
  EXPECT_EQ(host.blamed->why, "5 heads do not divide a width of 64");
}

// 3 · 2^62 and 4 · 2^62 would wrap to something small.
TEST_F(Gpt, RefusesSizesThatNoMemoryHolds) {
  build.facts["vocabulary"] = 100;
  const auto refused = [&](int64_t layers, int64_t width, int64_t context) {
    host.blamed.reset();
    host.set("layers", layers).set("width", width).set("context", context);
    declare();
    plugin.reset();
    return host.blamed ? host.blamed->key + ": " + host.blamed->why : "";
  };
  EXPECT_EQ(refused(2, int64_t{1} << 62, 32),
            "width: 2 layers of width 4611686018427387904 are 5.1e+38 parameters, more than a process can address");
  EXPECT_EQ(refused(1024, 1 << 20, 32),
            "width: 1024 layers of width 1048576 are 1.4e+16 parameters, more than a process can address");
  EXPECT_EQ(refused(2, 64, int64_t{1} << 62),
            "width: 2 layers of width 64 are 3.0e+20 parameters, more than a process can address");
  EXPECT_TRUE(build.layers.empty());
  EXPECT_EQ(refused(96, 12288, 2048), "");  // GPT-3
}

TEST_F(Gpt, RefusesASequenceLongerThanItsContext) {
  build.facts = {{"vocabulary", 100}, {"sequence_length", 33}};
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "context");
  EXPECT_EQ(host.blamed->fix, "[data] sequence_length = 32, or context = 33");
}

}  // namespace
