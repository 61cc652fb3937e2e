// Where flash attention refuses to run. Numbers against ATen: tests/operators.
#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"
#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Flash : testing::Test {
  std::string refusal(double dropout, uint32_t mode, uint32_t device = MORTISE_CPU) {
    mortise_place place{};
    place.mode = mode;
    place.device = device;
    return FakeBuild::refusal(plugin, "attention", place, {attr("dropout", dropout)});
  }
  FakeHost host;
  FakeBuild build{host};
  Plugin plugin{host, MORTISE_PLUGIN_FILE};
};

TEST_F(Flash, RefusesDropoutInTrainingAndSaysWhatToWrite) {
  EXPECT_EQ(refusal(0.1, MORTISE_TRAIN),
            "dropout 0.1 in training\n  fix: [attention.math], or let it choose: [attention.auto]");
  EXPECT_EQ(refusal(0.1, MORTISE_EVAL), "");
  EXPECT_EQ(refusal(0.0, MORTISE_TRAIN), "");
}

// So attention.auto never picks it where a bias will come, to fail at the first step.
TEST_F(Flash, RefusesAPlaceWhereABiasWillCome) {
  mortise_place place{};
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("bias", true)}),
            "it takes no bias\n  fix: [attention.math], or let it choose: [attention.auto]");
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("mask", "segments")}), "");
}

TEST_F(Flash, ServesSixteenBitsWithoutAMaskOnAGpu) {
  mortise_place place{};
  place.mode = MORTISE_TRAIN;
  place.device = MORTISE_CUDA;
  place.compute_dtype = MORTISE_BF16;
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("causal", true)}), "");
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("mask", "keys")}),
            "flash attention of a GPU takes no mask\n  fix: [attention.efficient]");
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("window", 8)}),
            "flash attention of a GPU takes no mask\n  fix: [attention.efficient]");
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("head_dim", 256)}), "");
  for (const int64_t width : {12, 264})
    EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("head_dim", width)}),
              "on a GPU it takes heads of widths up to 256 that are multiples of 8\n  fix: [attention.math], or let it "
              "choose: [attention.auto]");
  place.compute_dtype = MORTISE_F32;
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {}),
            "flash attention of a GPU computes in bf16 and fp16\n  fix: [precision.bf16], or [attention.efficient]");
}

TEST_F(Flash, RefusesABiasAndAWidthThatIsNotItsHeads) {
  const mortise::Tensor odd = host.tensor<float>({1, 2, 21}, std::vector<float>(42));
  void* const layer = build.layer(plugin, "attention", "h.0.attn", {attr("heads", 2), attr("head_dim", 4)});
  FakeCall call({mortise::value(odd)}, 1);
  call.layer_data = layer;
  mortise_saved saved[MORTISE_MAX_SAVED];
  uint32_t n = 0;
  EXPECT_NE(plugin.object<mortise_operator>("attention").forward(plugin.self(), &call, saved, &n), MORTISE_OK);
  EXPECT_EQ(host.error(), "h.0.attn: attention takes queries, keys and values packed as [batch, positions, 24]");
}

}  // namespace
