// The cross-entropy of rows of logits and its gradient, over raw pointers, on a GPU.
#pragma once
#include "kernels/cross_entropy/cross_entropy.h"

namespace mortise::kernels {

/** The functions of cross_entropy.h over all rows, in one launch each; every pointer is one of the device.
 *
 *  Memory    borrows until the stream has done it; allocates nothing. Fastest where rows begin at multiples of sixteen
 *            bytes.
 *  Repeats   its bits, always. Those of the host's processor but for e^x and the logarithm, which are the device's own:
 *            in F32 off by 2 units in the last place, and one more for every unit of |x|.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* cross_entropy_cuda(const CrossEntropyRows& rows, void* loss, void* statistics, void* stream);
const char* cross_entropy_gradient_cuda(const CrossEntropyRows& rows, const void* statistics, const void* scale,
                                        void* gradient, void* stream);

}  // namespace mortise::kernels
