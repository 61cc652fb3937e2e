// AdamW with weights and states in fp32 or bf16, each in its own, over raw pointers on the host's processor.
#pragma once
#include <cstdint>

namespace mortise::kernels {

// One step's numbers. Bias corrections are 1 - beta^t; `multiplier` turns the gradient in memory into the true one.
struct AnyPrecisionStep {
  double lr, weight_decay, beta1, beta2, eps, correction1, correction2, multiplier;
};

// Dtypes of the arrays of a parameter: numbers of mortise/dtypes.def.
struct AnyPrecisionDtypes {
  uint32_t p, m, v, compensation, g;
};

// An array and its dtype, a number of mortise/dtypes.def.
struct AnyPrecisionArray {
  void* data = nullptr;
  uint32_t dtype = 0;
};

// The arrays of one parameter. `compensation.data` is null without Kahan summation; `copy` gets p in bf16, or is null.
struct AnyPrecisionArrays {
  AnyPrecisionArray p, m, v, compensation;
  const void* g = nullptr;
  uint32_t g_dtype = 0;
  uint16_t* copy = nullptr;
};

/** Updates elements [begin, end) in the order of operations of torchdistx' AnyPrecisionAdamW. Each line is computed in
 *  fp32 and rounded to the dtype of the array that it changes; d has the dtype of v:
 *
 *    g = multiplier * grad                    p = p * (1 - lr * weight_decay)
 *    m = m * beta1                            m = m + (1 - beta1) * g
 *    v = v * beta2                            v = v + (1 - beta2) * g * g
 *    d = sqrt(v)                              d = d / sqrt(correction2)           d = d + eps
 *    p = p - (lr / correction1 * m) / d
 *
 *  and with Kahan summation, instead of the last line:
 *
 *    c = c - (lr / correction1 * m) / d       q = p + c       c = c + (p - q)     p = q
 *
 *  Dtypes   p, m, v, c F32 or BF16, in any mixture; g any of F32, F64, BF16, F16. Rounds to the nearest, ties to even.
 *           Factors are fp32; where m and g both are BF16, so is 1 - beta1, as in torch.
 *  Memory   borrows every pointer; allocates nothing. The arrays must not overlap.
 *  Threads  [any-thread]; ranges that do not overlap may run at once.
 *  Repeats  bitwise equal on every x86-64 processor, however the range is cut: no fused multiply-add, no reduction.
 *  Source   torchdistx, optimizers/anyprecision_optimizer.py.
 *  Since    0.1 */
void anyprecision_update(const AnyPrecisionStep& step, const AnyPrecisionArrays& arrays, int64_t begin, int64_t end);

}  // namespace mortise::kernels
