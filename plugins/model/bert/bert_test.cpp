// What BERT declares and refuses; no LibTorch. Logits and gradients against transformers: tests/parity/models.py.
#include <gtest/gtest.h>

#include <optional>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;

namespace {

struct Bert : testing::Test {
  Bert() {
    host.set("layers", 2)
        .set("heads", 4)
        .set("width", 64)
        .set("inner", 128)
        .set("context", 32)
        .set("types", 2)
        .set("eps", 1e-12)
        .set("dropout", 0.1)
        .set("attention_dropout", 0.2)
        .set("task", "classification")
        .set("vocabulary", 100)
        .unset("classes")
        .unset("preset");
    build.facts = {{"classes", 3}};
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

TEST_F(Bert, DeclaresBlocksOfSelfAttentionAndMlpWithTheNamesOfItsFiles) {
  ASSERT_EQ(declare(), "");
  const std::vector<std::pair<std::string, uint32_t>> expected = {{"bert.embeddings", 0},
                                                                  {"bert.encoder.layer.0", MORTISE_BLOCK},
                                                                  {"bert.encoder.layer.1", MORTISE_BLOCK},
                                                                  {"head", 0}};
  EXPECT_EQ(build.segments, expected);
  const std::string path = "bert.encoder.layer.1.";
  EXPECT_EQ(build.at(path + "attention").attrs, (Attributes{{"q", "self.query"},
                                                            {"k", "self.key"},
                                                            {"v", "self.value"},
                                                            {"out", "output.dense"},
                                                            {"width", "64"},
                                                            {"heads", "4"},
                                                            {"dropout", "0.2"},
                                                            {"mask", "none"}}));
  EXPECT_EQ(build.at(path + "mlp").attrs.at("name"), "bert.encoder.layer.1");
  EXPECT_EQ(build.at(path + "mlp").attrs.at("up"), "intermediate.dense");
  for (const char* norm : {"attention.output.LayerNorm", "output.LayerNorm"}) {
    EXPECT_EQ(build.at(path + norm).slot, "residual_norm");
    EXPECT_EQ(build.at(path + norm).attrs.at("dropout"), "0.1");
    EXPECT_EQ(build.at(path + norm).attrs.at("eps"), "1e-12");
  }
  EXPECT_EQ(build.at("bert.embeddings").attrs.at("types"), "2");
}

TEST_F(Bert, HidesPaddingWhereTheDataSaysWhatIsPadding) {
  build.facts["field.attention_mask"] = 1;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("bert.encoder.layer.0.attention").attrs.at("mask"), "keys");
}

TEST_F(Bert, HidesPaddingByPositionsWhereTheDataHasNoMask) {
  build.facts["field.positions"] = 1;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("bert.encoder.layer.0.attention").attrs.at("mask"), "keys");
}

TEST_F(Bert, KeepsSamplesThatArePackedIntoOneApart) {
  build.facts["field.attention_mask"] = build.facts["field.segments"] = 1;
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("bert.encoder.layer.0.attention").attrs.at("mask"), "segments");
}

TEST_F(Bert, ClassifiesAsManyClassesAsTheDataHas) {
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("classifier").attrs.at("out"), "3");
  EXPECT_EQ(build.at("bert.pooler.dense").attrs.at("activation"), "tanh");
  EXPECT_EQ(build.at("loss").slot, "loss");
}

TEST_F(Bert, TheManifestMaySayMoreClasses) {
  host.set("classes", 5);
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(build.at("classifier").attrs.at("out"), "5");
}

TEST_F(Bert, RefusesClassesThatNobodyKnowsOrThatAreTooFew) {
  build.facts.clear();
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->why, "the data does not say how many classes its labels are of");
  build.facts = {{"classes", 3}};
  host.set("classes", 2);
  declare();
  EXPECT_EQ(host.blamed->why, "the data has 3 classes, the model 2");
  EXPECT_EQ(host.blamed->fix, "classes = 3");
}

TEST_F(Bert, AMaskedLanguageModelHasAHeadTiedToTheEmbedding) {
  host.set("task", "masked_lm");
  build.facts.clear();
  host.add_param("bert.embeddings.word_embeddings.weight", "embedding", {});
  ASSERT_EQ(declare(), "");
  EXPECT_EQ(
      build.at("cls.predictions").attrs,
      (Attributes{
          {"vocab", "100"}, {"width", "64"}, {"bias", "true"}, {"tie", "bert.embeddings.word_embeddings.weight"}}));
  EXPECT_EQ(build.at("cls.predictions.transform.dense").attrs.at("activation"), "gelu");
  EXPECT_THROW(build.at("classifier"), std::out_of_range);
}

TEST_F(Bert, AMaskedLanguageModelRefusesLabelsThatMayBeTheNextTokens) {
  host.set("task", "masked_lm");
  build.facts = {{"field.labels", 1}};
  host.add_param("bert.embeddings.word_embeddings.weight", "embedding", {});
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "task");
  build.facts["labels_in_place"] = 1;
  EXPECT_EQ(declare(), "");
  build.facts = {};  // nothing to learn from, as when it only fills in words
  EXPECT_EQ(declare(), "");
}

TEST_F(Bert, AsksForNoDropoutLayersWithoutDropout) {
  host.set("dropout", 0.0);
  ASSERT_EQ(declare(), "");
  for (const auto& layer : build.layers) EXPECT_NE(layer.slot, "dropout");
}

}  // namespace
