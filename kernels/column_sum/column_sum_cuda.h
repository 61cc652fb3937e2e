// The sum over the rows of a matrix, as the gradient of a bias is, over raw pointers on a GPU.
#pragma once
#include <cstdint>

namespace mortise::kernels {

/** How many stretches of rows are summed beside one another: enough blocks of 64 columns for a device of 132
 * multiprocessors, none of a stretch shorter than 128 rows. [any-thread] */
inline int64_t column_sum_stretches(int64_t rows, int64_t columns) {
  const int64_t beside = (columns + 63) / 64, wanted = beside ? 528 / beside : 1, most = rows / 128;
  const int64_t least = wanted < most ? wanted : most;
  return least < 1 ? 1 : least;
}

/** sums[c] = Σ over r of x[r, c], in F32, in one launch or two; `add`: to what is there.
 *
 *  Shapes   x [rows, columns], sums [columns], scratch [column_sum_stretches, columns], each contiguous
 *  Dtypes   x: F32, BF16 or F16; sums and scratch: F32
 *  Memory   borrows all until the stream has done it; allocates nothing. Fastest where the rows begin at multiples of
 *           sixteen bytes.
 *  Repeats  bitwise: the order of the sum is that of the rows, in stretches that the shape decides.
 *  Returns  NULL, or what was wrong: the dtype, or CUDA's text of the launch (nothing written)
 *  Since    0.2 */
const char* column_sum_cuda(uint32_t dtype, const void* x, int64_t rows, int64_t columns, bool add, float* sums,
                            float* scratch, void* stream);

}  // namespace mortise::kernels
