// Adafactor over raw pointers, on a GPU.
#pragma once
#include <cstdint>

#include "kernels/adafactor/adafactor.h"
#include "kernels/cuda/ledger.h"

namespace mortise::kernels {

// The arrays of one parameter, on the device, with the dtypes of AdafactorArrays: matrices of rows × columns, or a
// vector, which is one row. `row` and `column` are the means of a matrix; of a vector `row` is its whole second moment,
// and `column` null. `copy` gets a p in fp32 in `copy_dtype` (MORTISE_BF16 or _F16), or is null. `space` is where the
// sums of a step lie, adafactor_space() doubles; what is in it before a step does not matter.
struct AdafactorSlice {
  void* p;
  const void* g;
  float *row, *column, *m;  // m: the first moment, or null
  void* copy;
  double* space;
  int64_t matrices, rows, columns;
  int32_t group;
  uint8_t master, grad, copy_dtype;
};

// For `space`: of a matrix 8 bytes a row for each 1,024 columns, and 4 bytes a column with 4 more for each 128 rows.
int64_t adafactor_space(int64_t matrices, int64_t rows, int64_t columns, bool is_vector);

/** The stages of Adafactor for all slices: six launches, or six for each three hundred slices. A verdict of 0 changes
 *  nothing. The step is applied + 1, taken on the device: nothing is read by the host, and a recording of the launches
 *  can be played in later steps.
 *
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of Adafactor, for its sums are cut and added in the same order; but for the decay of the second
 *            moment, whose pow may differ in the last bit, and for the bits of what is no number.
 *  Returns   NULL, or CUDA's text of what was wrong with a launch.
 *  Since     0.2 */
const char* adafactor_cuda(const AdafactorSlice* slices, int64_t n, const AdafactorSettings& settings,
                           const DeviceLedger& ledger, void* stream);

}  // namespace mortise::kernels
