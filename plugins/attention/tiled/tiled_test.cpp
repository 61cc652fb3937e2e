// Where tiled attention refuses to run. Numbers: kernels/tiled_attention, tests/gpu.
#include <gtest/gtest.h>

#include "kernels/attention/test_refusals.hpp"
#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Tiled : AttentionOfAGpu<MORTISE_BF16> {
  // Of a place that the kernel serves: nothing, unless there is no kernel.
  const std::string served = MORTISE_HAS_CUDA ? "" : "it was built without nvcc" + fix;
  std::string unless_built(const std::string& why) { return MORTISE_HAS_CUDA ? why + fix : served; }
};

TEST_F(Tiled, ServesDropoutMasksAndSharedHeadsInSixteenBits) {
  for (const uint32_t dtype : {MORTISE_BF16, MORTISE_F16})
    for (const int64_t width : {64, 128})
      EXPECT_EQ(refusal({attr("head_dim", width), attr("dropout", 0.1), attr("mask", "keys"), attr("heads", 4),
                         attr("kv_heads", 2), attr("window", 8)},
                        dtype),
                served);
}

TEST_F(Tiled, RefusesOtherWidthsAndTypesAndABias) {
  EXPECT_EQ(refusal({attr("head_dim", 32)}), unless_built("it wants heads of the width 64 or 128"));
  for (const uint32_t dtype : {MORTISE_F32, MORTISE_F64})
    EXPECT_EQ(refusal({attr("head_dim", 64)}, dtype), unless_built("it computes in bf16 and fp16"));
  EXPECT_EQ(refusal({attr("head_dim", 64), attr("bias", true)}), unless_built("it takes no bias"));
}

}  // namespace
