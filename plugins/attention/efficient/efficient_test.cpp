// Where memory-efficient attention refuses to run. Numbers: tests/gpu.
#include <gtest/gtest.h>

#include "kernels/attention/test_refusals.hpp"
#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

using Efficient = AttentionOfAGpu<MORTISE_F32>;

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

TEST_F(Efficient, TakesHeadsOfWidthsThatItsKernelsAreMadeFor) {
  EXPECT_EQ(refusal({attr("head_dim", 12)}), "");
  const std::string why = "it takes heads of widths that are multiples of 8 in 16 bits, of 4 in fp32" + fix;
  EXPECT_EQ(refusal({attr("head_dim", 12)}, MORTISE_BF16), why);
  EXPECT_EQ(refusal({attr("head_dim", 10)}), why);
}

}  // namespace
