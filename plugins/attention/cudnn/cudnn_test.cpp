// Where cuDNN's attention refuses to run. Numbers: tests/gpu.
#include <gtest/gtest.h>

#include "kernels/attention/test_refusals.hpp"
#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

using Cudnn = AttentionOfAGpu<MORTISE_BF16>;

TEST_F(Cudnn, ServesSixteenBitsOnly) {
  EXPECT_EQ(refusal({attr("head_dim", 64), attr("mask", "keys"), attr("heads", 4), attr("kv_heads", 2)}), "");
  EXPECT_EQ(refusal({attr("head_dim", 64)}, MORTISE_F16), "");
  for (const uint32_t dtype : {MORTISE_F32, MORTISE_F64})
    EXPECT_EQ(refusal({attr("head_dim", 64)}, dtype),
              "cuDNN's attention computes in bf16 and fp16\n  fix: [precision.bf16], or [attention.efficient]");
}

TEST_F(Cudnn, RefusesOddWidthsDropoutAndABias) {
  for (const int64_t width : {12, 160})
    EXPECT_EQ(refusal({attr("head_dim", width)}), "it takes heads of widths up to 128 that are multiples of 8" + fix);
  EXPECT_EQ(refusal({attr("head_dim", 64), attr("dropout", 0.1)}), "dropout 0.1 in training" + fix);
  EXPECT_EQ(refusal({attr("head_dim", 64), attr("bias", true)}), "it takes no bias" + fix);
}

}  // namespace
