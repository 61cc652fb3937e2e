// Where attention by hand refuses to run. Numbers against ATen: tests/operators.
#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

TEST(Math, RefusesDropoutInTrainingWhereItHasNoKernel) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const std::string refused = "dropout of attention.math was built for the CPU only\n  fix: dropout = 0";
  mortise_place place{};
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}), "");
  place.device = MORTISE_CUDA;
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}), MORTISE_HAS_CUDA ? "" : refused);
  place.device = 7;  // of a kind that nobody knows
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}), refused);
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.0)}), "");
  place.mode = MORTISE_EVAL;
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}), "");
}

TEST(Math, TakesEveryMaskOfTheVocabularyAndRefusesAnother) {
  FakeHost host;
  FakeBuild build(host);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto declare = [&](const char* mask) {
    build.layer(plugin, "attention", "h.0.attn", {attr("heads", 2), attr("head_dim", 4), attr("mask", mask)});
  };
  for (const char* mask : {"none", "keys", "segments", "full"}) EXPECT_NO_THROW(declare(mask));
  EXPECT_THROW(declare("rows"), PluginError);
  EXPECT_EQ(host.error(), "h.0.attn: there is no mask `rows`");
}

TEST(Math, RefusesHeadsThatKeysCannotServeAlike) {
  FakeHost host;
  FakeBuild build(host);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_THROW(
      build.layer(plugin, "attention", "h.0.attn", {attr("heads", 6), attr("kv_heads", 4), attr("head_dim", 4)}),
      PluginError);
  EXPECT_EQ(host.error(), "h.0.attn: 4 heads of keys and values cannot serve 6 heads of queries of width 4 alike");
}
