// softmax(q·kᵀ · scale + added)·v with dropout, a tile at a time, over raw pointers on a GPU: no array of positions by
// positions, neither of scores nor of what was dropped.
#pragma once
#include <cstdint>

#include "kernels/cuda/place.h"

namespace mortise::kernels {

// An array [B, H, T, D] of which D numbers lie side by side; how many elements lie from one to the next of the others,
// each a multiple of eight.
struct HeadsView {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
};

struct TiledAttention {
  uint32_t dtype;              // of q, k, v and everything of their shape: BF16 or F16
  int batch, heads, kv_heads;  // `heads` of queries, a multiple of those of keys and values
  int queries, keys, width;    // the last query stands where the last key does; width: 64 or 128
  bool causal;
  float scale;
  HeadsView q, k, v;
  const float* added;        // to the scores, or NULL; minus infinity may hide keys, not all of a row
  int64_t added_strides[4];  // of [B, H, T, S], 0 where it is broadcast
  double dropout;            // 0: nobody reads `place`
  DevicePlace place;         // of the element ((b·H + h)·T + t)·S + s of the probabilities
};

/** Why there is no kernel for heads of this element type and width, or NULL; in every build. [any-thread] */
const char* tiled_attention_refuses(uint32_t dtype, int64_t width);

/** Forward, in one launch.
 *
 *  Writes    y [B, H, T, D]; `rows` [2, B, H, T]: of each row the largest score and 1 / Σ exp(score − largest), which
 *            backward wants.
 *  Dtypes    products of `dtype` with sums in F32; scores, softmax and sums in F32; probabilities are rounded to
 *            `dtype` before they meet v.
 *  Memory    borrows every pointer until the stream has done it; all are multiples of sixteen bytes; allocates nothing.
 *  Repeats   bitwise. What is dropped is what `dropout` of the probabilities drops, on any device.
 *  Returns   NULL, or what was wrong (nothing written)
 *  Source    Dao 2023, arXiv:2307.08691
 *  Since     0.2 */
const char* tiled_attention_cuda(const TiledAttention& a, const HeadsView& y, float* rows, void* stream);

/** Backward, in two launches: one adds up over keys, one over queries, each in its order, so that no sum is atomic.
 *
 *  Reads     y and `rows` of forward, dy [B, H, T, D]
 *  Writes    dq [B, H, T, D], dk and dv [B, K, S, D]; `dots` [B, H, T] is scratch. */
const char* tiled_attention_backward_cuda(const TiledAttention& a, const HeadsView& y, const float* rows,
                                          const HeadsView& dy, const HeadsView& dq, const HeadsView& dk,
                                          const HeadsView& dv, float* dots, void* stream);

}  // namespace mortise::kernels
