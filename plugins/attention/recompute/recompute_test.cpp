// Where recomputed attention refuses to run. Numbers: kernels/probabilities, tests/gpu.
#include <gtest/gtest.h>

#include "kernels/attention/test_refusals.hpp"
#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Recompute : AttentionOfAGpu<MORTISE_F32> {
  Recompute() { host.set("workspace", 64); }
  // Of a place that it serves: nothing, unless there is no kernel.
  const std::string served = MORTISE_HAS_CUDA ? "" : "it was built without nvcc" + fix;
  std::string unless_built(const std::string& why) { return MORTISE_HAS_CUDA ? why + fix : served; }
};

TEST_F(Recompute, ServesDropoutMasksAndSharedHeadsOfAnyWidth) {
  for (const int64_t width : {24, 64, 256})
    for (const uint32_t dtype : {MORTISE_F32, MORTISE_NO_DTYPE})
      EXPECT_EQ(refusal({attr("head_dim", width), attr("dropout", 0.1), attr("mask", "full"), attr("heads", 4),
                         attr("kv_heads", 2), attr("window", 8)},
                        dtype),
                served);
}

TEST_F(Recompute, RefusesOtherTypesAndABias) {
  for (const uint32_t dtype : {MORTISE_BF16, MORTISE_F16, MORTISE_F64})
    EXPECT_EQ(refusal({attr("head_dim", 64)}, dtype), unless_built("it computes in fp32"));
  EXPECT_EQ(refusal({attr("head_dim", 64), attr("bias", true)}), unless_built("it takes no bias"));
}

}  // namespace
