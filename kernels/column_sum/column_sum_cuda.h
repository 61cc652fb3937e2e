// The sum over the rows of a matrix, as the gradient of a bias is, over raw pointers on a GPU.
#pragma once
#include <cstdint>

namespace mortise::kernels {

/** sums[c] = Σ over r of x[r, c], in F32, in one launch; `add`: to what is there.
 *
 *  Shapes   x [rows, columns] and sums [columns], each contiguous
 *  Dtypes   x: F32, BF16 or F16; sums: F32
 *  Memory   borrows both until the stream has done it; allocates nothing. Fastest where the rows begin at multiples of
 *           sixteen bytes.
 *  Repeats  bitwise: the order of the sum is that of the rows' numbers.
 *  Returns  NULL, or what was wrong: the dtype, or CUDA's text of the launch (nothing written)
 *  Since    0.2 */
const char* column_sum_cuda(uint32_t dtype, const void* x, int64_t rows, int64_t columns, bool add, float* sums,
                            void* stream);

}  // namespace mortise::kernels
