// What LoRA declares, freezes and refuses; no LibTorch. Its arithmetic: tests/operators.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Lora : testing::Test {
  Lora() { host.set("rank", 4).set("alpha", 8.0).set("dropout", 0.0).set("also", std::vector<std::string>()); }
  std::string declare(std::initializer_list<mortise_attr> attrs, const std::string& path = "h.0.fc") {
    try {
      plugin.emplace(host, MORTISE_PLUGIN_FILE);
      build.layer(*plugin, "linear", path, attrs);
      return "";
    } catch (const PluginError& e) {
      return e.what();
    }
  }
  FakeHost host;
  FakeBuild build{host};
  std::optional<Plugin> plugin;
};

TEST_F(Lora, AsksForTheLinearOfItsOwnPlaceWithoutTheActivation) {
  ASSERT_EQ(declare({attr("name", "fc"), attr("in", 16), attr("out", 32), attr("activation", "gelu")}), "");
  const FakeBuild::Layer& base = build.at("h.0.fc");
  EXPECT_EQ(base.slot, "linear");
  const std::map<std::string, std::string> expected = {{"name", "fc"}, {"in", "16"}, {"out", "32"}};
  EXPECT_EQ(base.attrs, expected);
  EXPECT_EQ(build.layers.size(), 1u) << "no dropout where there is none";
}

TEST_F(Lora, DeclaresPeftsMatricesUnderPeftsNames) {
  ASSERT_EQ(declare({attr("in", 16), attr("out", 32)}), "");
  const FakeBuild::Param &a = build.params.at("h.0.fc.lora_A.weight"), &b = build.params.at("h.0.fc.lora_B.weight");
  EXPECT_EQ(a.sizes, (std::vector<int64_t>{4, 16}));
  EXPECT_EQ(a.init, "uniform");
  EXPECT_DOUBLE_EQ(a.scale, std::sqrt(6.0 / ((1 + 5) * 16))) << "kaiming_uniform_ with a = sqrt(5)";
  EXPECT_EQ(b.sizes, (std::vector<int64_t>{32, 4}));
  EXPECT_EQ(b.init, "constant");
  EXPECT_EQ(b.scale, 0);
  for (const auto* p : {&a, &b}) EXPECT_EQ(p->tags, (std::vector<std::string>{"adapter", "new"}));
}

TEST_F(Lora, SaysHowItIsMerged) {
  ASSERT_EQ(declare({attr("name", "fc"), attr("in", 16), attr("out", 32), attr("layout", "in_out")}), "");
  ASSERT_EQ(build.merges.size(), 1u);
  EXPECT_EQ(build.merges[0].into, "fc.weight");
  EXPECT_EQ(build.merges[0].left, "fc.lora_B.weight");
  EXPECT_EQ(build.merges[0].right, "fc.lora_A.weight");
  EXPECT_EQ(build.merges[0].scale, 2);
  EXPECT_TRUE(build.merges[0].transposed);
  ASSERT_EQ(declare({attr("in", 16), attr("out", 32)}, "other"), "");
  EXPECT_FALSE(build.merges[1].transposed);
}

TEST_F(Lora, RefusesAnActivationThatItDoesNotKnow) {
  EXPECT_NE(declare({attr("in", 16), attr("out", 32), attr("activation", "swish")}), "");
  EXPECT_EQ(host.error(), "h.0.fc: there is no activation `swish`");
}

TEST_F(Lora, FreezesAllButWhatAlsoNames) {
  host.set("also", std::vector<std::string>{"h.?.ln.*", "tag:head"});
  Plugin adapter(host, MORTISE_PLUGIN_FILE);
  const auto learns = [&](const std::string& name, std::vector<std::string> tags) {
    mortise_param* p = host.add_param(name, "matrix", {2, 2}, std::move(tags));
    mortise_event event{};
    event.struct_size = sizeof event;
    event.param = p;
    EXPECT_EQ(adapter.notify("params.declared", event), MORTISE_OK) << host.error();
    return mortise::info_of(p).trainable != 0;
  };
  EXPECT_TRUE(learns("h.3.ln.weight", {}));
  EXPECT_FALSE(learns("h.33.ln.weight", {})) << "`?` is one character";
  EXPECT_FALSE(learns("h.3.fc.weight", {}));
  EXPECT_TRUE(learns("classifier.weight", {"head"}));
  EXPECT_TRUE(learns("h.3.fc.lora_A.weight", {"adapter"}));
}

TEST_F(Lora, RefusesARankThatNoProductOfTheseSizesHas) {
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  const auto refusal = [&](int64_t in, int64_t out) {
    return FakeBuild::refusal(*plugin, "linear", {}, {attr("in", in), attr("out", out)});
  };
  EXPECT_EQ(refusal(4, 64), "");
  EXPECT_EQ(
      refusal(64, 3),
      "a rank of 4 is above what a matrix of 3 x 64 can have\n  fix: [adapter.lora] rank = 3, or a `where` without "
      "this layer");
}

}  // namespace
