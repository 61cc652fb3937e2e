// What ViT declares and refuses; no LibTorch. Logits and gradients against transformers: tests/parity/models.py.
#include <gtest/gtest.h>

#include <optional>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;

namespace {

struct Vit : testing::Test {
  Vit() {
    host.set("layers", 2)
        .set("heads", 4)
        .set("width", 64)
        .set("inner", 128)
        .set("image_size", 32)
        .set("patch_size", 8)
        .set("channels", 3)
        .set("eps", 1e-12)
        .set("dropout", 0.1)
        .set("attention_dropout", 0.0)
        .unset("classes")
        .unset("preset");
    build.facts = {{"classes", 10}};
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
  using Sizes = std::vector<int64_t>;
};

TEST_F(Vit, CutsAnImageIntoPatchesBehindATokenOfItsOwn) {
  ASSERT_EQ(declare(), "");
  const std::string path = "vit.embeddings.";
  EXPECT_EQ(build.params.at(path + "patch_embeddings.projection.weight").sizes, (Sizes{64, 3, 8, 8}));
  EXPECT_EQ(build.params.at(path + "patch_embeddings.projection.weight").role, "matrix");
  EXPECT_EQ(build.params.at(path + "position_embeddings").sizes, (Sizes{1, 17, 64}));
  EXPECT_EQ(build.params.at(path + "cls_token").sizes, (Sizes{1, 1, 64}));
  EXPECT_EQ(build.at("classifier").attrs.at("out"), "10");
}

TEST_F(Vit, DeclaresBlocksThatSeeEveryPatch) {
  ASSERT_EQ(declare(), "");
  const std::string path = "vit.encoder.layer.1.";
  EXPECT_EQ(build.at(path + "attention").attrs.at("q"), "attention.query");
  EXPECT_FALSE(build.at(path + "attention").attrs.contains("causal"));
  EXPECT_EQ(build.at("vit.encoder.layer.0.layernorm_before").slot, "norm");
  EXPECT_EQ(build.at(path + "layernorm_before").slot, "residual_norm");
  EXPECT_EQ(build.at(path + "layernorm_before").attrs.at("dropout"), "0.1");
}

TEST_F(Vit, RefusesPatchesThatDoNotDivideTheImage) {
  host.set("patch_size", 7);
  declare();
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "patch_size");
  EXPECT_EQ(host.blamed->why, "patches of 7 pixels do not divide a side of 32");
}

}  // namespace
