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

// So attention.auto never picks it for padded batches, to fail at the first step.
TEST_F(Flash, RefusesAPlaceWhereAMaskWillCome) {
  mortise_place place{};
  const auto refused = [&](const char* mask) {
    return FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.0), attr("mask", mask)});
  };
  EXPECT_EQ(refused("keys"), "it takes no mask (keys)\n  fix: [attention.math], or let it choose: [attention.auto]");
  EXPECT_EQ(refused("none"), "");
}

TEST_F(Flash, RefusesAnotherDevice) {
  EXPECT_EQ(refusal(0.0, MORTISE_TRAIN, MORTISE_CUDA),
            "attention.flash is a kernel of the CPU\n  fix: [attention.math]");
}

TEST_F(Flash, RefusesAMaskAndAWidthThatIsNotItsHeads) {
  const mortise::Tensor qkv = host.tensor<float>({1, 2, 21}, std::vector<float>(42)),
                        mask = host.tensor<float>({1, 2}, {0, 0});
  void* const layer = build.layer(plugin, "attention", "h.0.attn", {attr("heads", 2), attr("head_dim", 4)});
  const auto error = [&](const mortise::Tensor& with) {
    FakeCall call({mortise::value(qkv), mortise::value(with)}, 1);
    call.layer_data = layer;
    mortise_saved saved[MORTISE_MAX_SAVED];
    uint32_t n = 0;
    EXPECT_NE(plugin.object<mortise_operator>("attention").forward(plugin.self(), &call, saved, &n), MORTISE_OK);
    return host.error();
  };
  EXPECT_EQ(error(mask),
            "attention.flash takes no mask, and the model announced none: its attribute `mask` is not \"keys\"\n"
            "  fix: [attention.math]");
  EXPECT_EQ(error({}), "attention takes queries, keys and values packed as [batch, positions, 3 * heads * head_dim]");
}

}  // namespace
