// Dropout over raw pointers, on a GPU.
#pragma once
#include <cstdint>

#include "kernels/cuda/place.h"

namespace mortise::kernels {

/** The function `dropout` of dropout.h, in one launch; element, dtypes and ranges as there. The step of the bits is
 * read on the device, so that a recording of the launch draws those of the step in which it is played.
 *
 *  Memory    borrows every pointer until the stream has done it; allocates nothing. y may be x or residual where the
 *            dtypes agree. Fastest where the elements 0 lie at multiples of sixteen bytes.
 *  Repeats   the bits of `dropout`; of a NaN only that it is one.
 *  Returns   NULL, or what was wrong: the pair of dtypes, or CUDA's text of the launch (y untouched).
 *  Since     0.2 */
const char* dropout_cuda(const DevicePlace& place, double p, uint32_t x_dtype, const void* x, const void* residual,
                         uint32_t y_dtype, void* y, int64_t begin, int64_t end, void* stream);

}  // namespace mortise::kernels
