// Sums over the rows of a matrix.
//
// Floor   one read of x: 2 bytes an element in 16 bits. ATen's sum of 2,048 rows by 1,024 columns took five times that.
// Plan    a block owns so many columns that a row of them is a sector of 32 bytes, and all rows: its threads take the
//         rows in turn, eight of them under way, and meet in shared memory. No second launch, no atomics.
// Now     see docs/measurements.md.
#include "kernels/column_sum/column_sum_cuda.h"

#include "kernels/cuda/floats.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

constexpr int kThreads = 256, kAhead = 8;

template <class T>
constexpr int kPack = 16 / sizeof(T);  // columns of a thread; a block has two threads beside one another

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_columns(const T* x, int64_t rows, int64_t columns, bool packed, bool add, float* sums) {
  constexpr int kColumns = kPack<T>, kTeams = kThreads / 2;
  __shared__ float all[kTeams][2 * kColumns];
  const int side = static_cast<int>(threadIdx.x) % 2, team = static_cast<int>(threadIdx.x) / 2;
  const int64_t first = (int64_t{blockIdx.x} * 2 + side) * kColumns;
  const int64_t left = columns - first;
  const int n = left < 0 ? 0 : left < kColumns ? static_cast<int>(left) : kColumns;
  float sum[kColumns] = {};
  for (int64_t row = team; row < rows && n > 0; row += kTeams * kAhead) {
    T here[kAhead][kColumns];
    MORTISE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = row + i * kTeams;
      read<kColumns>(x + at * columns + first, at < rows ? n : 0, packed && n == kColumns && at < rows, here[i]);
    }
    MORTISE_UNROLL
    for (int i = 0; i < kAhead; ++i)
      for (int k = 0; k < kColumns; ++k) sum[k] += static_cast<float>(here[i][k]);
  }
  for (int k = 0; k < kColumns; ++k) all[team][side * kColumns + k] = sum[k];
  for (int half = kTeams / 2; half > 0; half /= 2) {
    __syncthreads();
    if (team < half)
      for (int k = 0; k < kColumns; ++k) all[team][side * kColumns + k] += all[team + half][side * kColumns + k];
  }
  if (team == 0)
    for (int k = 0; k < n; ++k) sums[first + k] = (add ? sums[first + k] : 0) + all[0][side * kColumns + k];
}

template <class T>
void launch(const void* x, int64_t rows, int64_t columns, bool add, float* sums, void* stream) {
  const auto blocks = static_cast<unsigned>((columns + 2 * kPack<T> - 1) / (2 * kPack<T>));
  const bool packed = reinterpret_cast<uintptr_t>(x) % 16 == 0 && columns % kPack<T> == 0;
  if (blocks > 0)
    MORTISE_LAUNCH(sum_columns<T>, blocks, kThreads, stream, static_cast<const T*>(x), rows, columns, packed, add,
                   sums);
}

}  // namespace

const char* column_sum_cuda(uint32_t dtype, const void* x, int64_t rows, int64_t columns, bool add, float* sums,
                            void* stream) {
  switch (dtype) {
    case MORTISE_F32: launch<float>(x, rows, columns, add, sums, stream); break;
    case MORTISE_BF16: launch<BF16>(x, rows, columns, add, sums, stream); break;
    case MORTISE_F16: launch<F16>(x, rows, columns, add, sums, stream); break;
    default: return "a sum over rows has no kernel for this element type";
  }
  return launch_error();
}

}  // namespace mortise::kernels
