// AdamW over raw pointers, on the host's processor.
#pragma once
#include <array>
#include <cstdint>

#include "mortise/abi.h"

namespace mortise::kernels {

// One step's numbers. Bias corrections are 1 - beta^t; `multiplier` turns the gradient in memory into the true one.
struct AdamWStep {
  double lr, weight_decay, beta1, beta2, eps, correction1, correction2, multiplier;
};

// The bias correction 1 - beta^t of step t, counted from 1.
double adamw_correction(double beta, int64_t t);
AdamWStep adamw_step(double lr, double weight_decay, const std::array<double, 2>& betas, double eps, int64_t t,
                     double multiplier);

// The arrays of one parameter. `p`, `m`, `v` have the dtype `master` (MORTISE_F32 or _F64), `g` the dtype `grad` (these
// or _BF16); `copy` gets p in BF16, or is null.
struct AdamWArrays {
  uint32_t master = MORTISE_F32, grad = MORTISE_F32;
  void *p = nullptr, *m = nullptr, *v = nullptr;
  const void* g = nullptr;
  uint16_t* copy = nullptr;
};

/** Updates elements [begin, end), in the order of operations of torch.optim.AdamW:
 *
 *    g = multiplier * grad        p = p * (1 - lr * weight_decay)
 *    m = lerp(m, g, 1 - beta1)    v = beta2 * v + ((1 - beta2) * g) * g
 *    p = p - (lr / correction1 * m) / (sqrt(v) / sqrt(correction2) + eps)
 *
 *  Dtypes   arithmetic in the master's; `copy` is rounded to the nearest, ties to even.
 *  Memory   borrows every pointer; allocates nothing. The arrays must not overlap.
 *  Threads  [any-thread]; ranges that do not overlap may run at once.
 *  Repeats  bitwise equal on every x86-64 processor, however the range is cut: no fused multiply-add, no reduction.
 *  Source   Loshchilov & Hutter 2019, arXiv:1711.05101.
 *  Since    0.1 */
void adamw_update(const AdamWStep& step, const AdamWArrays& arrays, int64_t begin, int64_t end);

}  // namespace mortise::kernels
