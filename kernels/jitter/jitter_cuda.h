// Factors around 1 from counter-based bits, over raw pointers, on a GPU.
#pragma once
#include <cstdint>

#include "kernels/cuda/place.h"

namespace mortise::kernels {

/** The function `jitter` of jitter.h, of all n elements, in one launch. The step of the bits is read on the device, so
 * that a recording of the launch draws those of the step in which it is played.
 *
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of `jitter`.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* jitter_cuda(const DevicePlace& place, double amount, float* factor, int64_t n, void* stream);

}  // namespace mortise::kernels
