// Dropout from counter-based bits: what is kept is decided by the element's number alone, so nothing is stored between
// forward and backward.
#pragma once
#include <cstdint>

#include "mortise/abi.h"
#include "mortise/philox.h"

namespace mortise::kernels {

/** y = x · factor (+ residual) for the elements [begin, end), where factor is mortise_dropout_scale(p) if the element's
 * 16 bits are at least mortise_dropout_threshold(p), else 0. Backward is the same function of the gradient.
 *
 *  Shapes   flat: all pointers are to element 0; `begin` and `end` may be any, so pieces give the bits of the whole.
 *  Dtypes   (x, y): F32 F64 BF16 alike, BF16 → F32, F32 → BF16; `residual` is of y's dtype or NULL. BF16 is computed
 *           in F32 and rounded once.
 *  Memory   borrows; y may be x or residual where the dtypes agree.
 *  Threads  [any-thread]
 *  Errors   false for a pair of dtypes that is not above (y untouched)
 *  Repeats  bitwise equal on every machine, for every split. A NaN that is dropped stays a NaN, as in x · mask.
 *  Since    0.1 */
bool dropout(const mortise_philox& place, double p, uint32_t x_dtype, const void* x, const void* residual,
             uint32_t y_dtype, void* y, int64_t begin, int64_t end);

}  // namespace mortise::kernels
