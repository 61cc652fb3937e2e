// Where memory-efficient attention refuses to run. Numbers: tests/gpu.
#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Efficient : testing::Test {
  std::string refusal(std::initializer_list<mortise_attr> attrs, uint32_t dtype = MORTISE_F32) {
    mortise_place place{};
    place.mode = MORTISE_TRAIN;
    place.device = MORTISE_CUDA;
    place.compute_dtype = dtype;
    return FakeBuild::refusal(plugin, "attention", place, attrs);
  }
  FakeHost host;
  FakeBuild build{host};
  Plugin plugin{host, MORTISE_PLUGIN_FILE};
  const std::string fix = "\n  fix: [attention.math], or let it choose: [attention.auto]";
};

TEST_F(Efficient, ServesMasksInEveryDtypeButFp64) {
  for (const uint32_t dtype : {MORTISE_F32, MORTISE_BF16, MORTISE_F16})
    EXPECT_EQ(refusal({attr("mask", "segments"), attr("window", 3)}, dtype), "");
  EXPECT_EQ(refusal({}, MORTISE_F64), "it computes in fp32, bf16 and fp16" + fix);
}

TEST_F(Efficient, RefusesDropoutABiasAndHeadsThatAreShared) {
  EXPECT_EQ(refusal({attr("dropout", 0.1)}), "dropout 0.1 in training" + fix);
  EXPECT_EQ(refusal({attr("bias", true)}), "it takes no bias" + fix);
  EXPECT_EQ(refusal({attr("heads", 4), attr("kv_heads", 2)}),
            "it wants as many heads of keys and values as of queries" + fix);
  EXPECT_EQ(refusal({attr("heads", 4), attr("kv_heads", 4)}), "");
}

}  // namespace
