// SGD over raw pointers, on a GPU.
#pragma once
#include <cstdint>

#include "kernels/cuda/ledger.h"

namespace mortise::kernels {

// The arrays of one parameter, on the device. `p` and `b` have the dtype of the call, `g` the dtype `grad`
// (MORTISE_F32, _F64 or _BF16); `b` is not looked at without momentum; `copy` gets p in `copy_dtype` (_BF16 or _F16),
// or is null.
struct SGDSlice {
  void *p, *b;
  const void* g;
  void* copy;
  int64_t length;
  int32_t group;
  uint16_t grad, copy_dtype;
};

/** The arithmetic of sgd_update, of all slices in one launch, or in few. A verdict of 0 changes nothing. Nothing is
 * read by the host, and a recording of the launch can be played in later steps.
 *
 *  `master`  dtype of p and b: MORTISE_F32 or _F64; arithmetic in it.
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of sgd_update.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* sgd_cuda(const SGDSlice* slices, int64_t n, uint32_t master, const DeviceLedger& ledger, double momentum,
                     bool nesterov, void* stream);

}  // namespace mortise::kernels
