// AdamW over raw pointers, on a GPU.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/cuda/ledger.h"

namespace mortise::kernels {

// The arrays of one parameter, on the device. `p`, `m` and `v` have the dtype of the call, `g` the dtype `grad`
// (MORTISE_F32, _F64 or _BF16); `copy` gets p in `copy_dtype` (_BF16 or _F16), or is null.
struct AdamWSlice {
  void *p, *m, *v;
  const void* g;
  void* copy;
  int64_t length;
  int32_t group;
  uint16_t grad, copy_dtype;
};

/** The arithmetic of adamw_update, of all slices in one launch, or in few. A verdict of 0 changes nothing. Bias
 * corrections are of step applied + 1, taken on the device: nothing is read by the host, and a recording of the launch
 * can be played in later steps.
 *
 *  `master`  dtype of p, m and v: MORTISE_F32 or _F64; arithmetic in it.
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of adamw_update, but for bias corrections, whose pow may differ in the last bit.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* adamw_cuda(const AdamWSlice* slices, int64_t n, uint32_t master, const DeviceLedger& ledger,
                       const std::array<double, 2>& betas, double eps, void* stream);

}  // namespace mortise::kernels
