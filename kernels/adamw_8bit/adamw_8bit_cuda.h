// AdamW with 8-bit means over raw pointers, on a GPU.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/cuda/ledger.h"

namespace mortise::kernels {

// The arrays of one parameter, on the device, with the dtypes of AdamW8BitArrays. `m` and `v` are indices with scales,
// or floats without; `copy` gets a p in fp32 in `copy_dtype` (MORTISE_BF16 or _F16), or is null.
struct AdamW8BitSlice {
  void *p, *m, *v;
  float *m_scale, *v_scale;
  const void* g;
  void* copy;
  int64_t length;
  int32_t group;
  uint8_t master, grad, copy_dtype;
};

/** The arithmetic of adamw_8bit_update, of all slices in one launch, or in few; each begins at a multiple of 256
 *  elements of its parameter. A verdict of 0 changes nothing. Bias corrections are of step applied + 1, taken on the
 *  device: nothing is read by the host, and a recording of the launch can be played in later steps.
 *
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of adamw_8bit_update, but for bias corrections, whose pow may differ in the last bit, and for the
 *            bits of what is no number.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* adamw_8bit_cuda(const AdamW8BitSlice* slices, int64_t n, const DeviceLedger& ledger,
                            const std::array<double, 2>& betas, double eps, void* stream);

/** The same with the arithmetic of adamw_32bit_update: `m` and `v` are floats, and a slice may begin anywhere. */
const char* adamw_32bit_cuda(const AdamW8BitSlice* slices, int64_t n, const DeviceLedger& ledger,
                             const std::array<double, 2>& betas, double eps, void* stream);

}  // namespace mortise::kernels
