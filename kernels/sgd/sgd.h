// SGD over raw pointers, on the host's processor.
#pragma once
#include <cstdint>

#include "mortise/abi.h"

namespace mortise::kernels {

// One step's numbers; `multiplier` turns the gradient in memory into the true one.
struct SGDStep {
  double lr, weight_decay, momentum, multiplier;
  bool nesterov;
};

// The arrays of one parameter. `p` and `b` have the dtype `master` (MORTISE_F32 or _F64), `g` the dtype `grad` (these
// or _BF16); `b` is null without momentum; `copy` gets p in BF16, or is null.
struct SGDArrays {
  uint32_t master = MORTISE_F32, grad = MORTISE_F32;
  void *p = nullptr, *b = nullptr;
  const void* g = nullptr;
  uint16_t* copy = nullptr;
};

/** Updates elements [begin, end), in the order of operations of torch.optim.SGD:
 *
 *    g = multiplier * grad + weight_decay * p      b = momentum * b + g
 *    p = p - lr * (nesterov ? g + momentum * b : b)
 *
 *  torch sets b = g in the first step; from b = 0 that is the same. Without `b` it is p = p - lr * g.
 *
 *  Dtypes   arithmetic in the master's; `copy` is rounded to the nearest, ties to even.
 *  Memory   borrows every pointer; allocates nothing. The arrays must not overlap.
 *  Threads  [any-thread]; ranges that do not overlap may run at once.
 *  Repeats  bitwise equal on every x86-64 processor, however the range is cut: no fused multiply-add, no reduction.
 *  Source   Robbins & Monro 1951; momentum: Polyak 1964; Nesterov: Sutskever et al. 2013.
 *  Since    0.2 */
void sgd_update(const SGDStep& step, const SGDArrays& arrays, int64_t begin, int64_t end);

}  // namespace mortise::kernels
