// dropout(softmax(q·kᵀ · scale + added)) of attention and its gradient, each in one launch and in place, over raw
// pointers on a GPU. Products are somebody else's, and so it is which rows there are at a time.
#pragma once
#include <cstdint>

#include "kernels/cuda/place.h"

namespace mortise::kernels {

struct Probabilities {
  int heads, queries, keys;  // the last query stands where the last key does
  bool causal;
  float scale;
  const float* added;        // to the scores, or NULL; minus infinity may hide keys, not all of a row
  int64_t added_strides[4];  // of [B, H, T, S], 0 where it is broadcast
  double dropout;            // 0: nobody reads `place`
  DevicePlace place;         // of the element ((b·H + h)·T + t)·S + s of the probabilities
};

// The longest row that there is a kernel for.
constexpr int64_t kMostKeys = 32768;

/** Rows [first, first + n) of [B·H·T], which are fewer than 2^32: products q·kᵀ to what meets v.
 *
 *  Shapes    scores [n, S], whose element 0 is that of row `first`
 *  Dtypes    F32
 *  Memory    borrows every pointer until the stream has done it; allocates nothing. Fastest where `scores` lies at a
 *            multiple of sixteen bytes and S is a multiple of eight.
 *  Repeats   bitwise, however rows are split into calls. What is dropped is what `dropout` of the probabilities drops,
 *            on any device.
 *  Returns   NULL, or what was wrong (nothing written)
 *  Since     0.2 */
const char* probabilities_cuda(const Probabilities& a, int64_t first, int64_t n, float* scores, void* stream);

/** The same rows backward: `scores` as above; `grads` [n, S] are gradients of what met v and become those of the
 * products q·kᵀ. */
const char* probabilities_backward_cuda(const Probabilities& a, int64_t first, int64_t n, float* scores, float* grads,
                                        void* stream);

}  // namespace mortise::kernels
