// AdamW with weights and states in fp32 or bf16, each in its own, over raw pointers on a GPU.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/cuda/ledger.h"

namespace mortise::kernels {

// The arrays of one parameter, on the device. `p`, `m`, `v` and `compensation` have the dtypes of the call, `g` the
// dtype `grad` (MORTISE_F32, _F64, _BF16 or _F16); `compensation` is not looked at without Kahan summation; `copy` gets
// p in `copy_dtype` (_BF16 or _F16), or is null.
struct AnyPrecisionSlice {
  void *p, *m, *v, *compensation;
  const void* g;
  void* copy;
  int64_t length;
  int32_t group;
  uint16_t grad, copy_dtype;
};

// Of all slices of a call: MORTISE_F32 or _BF16; `compensation` is MORTISE_NO_DTYPE without Kahan summation.
struct AnyPrecisionKept {
  uint32_t p, m, v, compensation;
};

/** The arithmetic of anyprecision_update, of all slices in one launch, or in few. A verdict of 0 changes nothing. Bias
 * corrections are of step applied + 1, taken on the device: nothing is read by the host, and a recording of the launch
 * can be played in later steps.
 *
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of anyprecision_update, but for bias corrections, whose pow may differ in the last bit, and for
 *            which NaN it is.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* anyprecision_cuda(const AnyPrecisionSlice* slices, int64_t n, const AnyPrecisionKept& kept,
                              const DeviceLedger& ledger, const std::array<double, 2>& betas, double eps, void* stream);

}  // namespace mortise::kernels
