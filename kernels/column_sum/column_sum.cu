// Sums over the rows of a matrix.
//
// Floor   one read of x: 2 bytes an element in 16 bits.
// Plan    a block owns 128 bytes of a row and a stretch of the rows: 32 teams of eight threads take the rows in turn,
//         four of them under way each, and meet in shared memory. Where one stretch would leave the device idle there
//         are several, whose sums are summed by a second launch of the same kernel; no atomics.
#include "kernels/column_sum/column_sum_cuda.h"

#include "kernels/cuda/floats.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

constexpr int kThreads = 256, kSide = 8, kTeams = kThreads / kSide, kAhead = 4;

template <class T>
constexpr int kPack = 16 / sizeof(T);  // columns of a thread

template <class T>
struct Job {
  const T* x;
  int64_t rows, columns, stretch;  // rows of a block
  unsigned beside;                 // blocks to a stretch
  bool packed, add;
  float* sums;  // of each stretch, one after the other
};

template <class T>
__global__ void __launch_bounds__(kThreads) sum_columns(const __grid_constant__ Job<T> job) {
  constexpr int kColumns = kPack<T>, kWarps = kThreads / 32;
  __shared__ float all[kWarps][kSide * kColumns];
  const int side = static_cast<int>(threadIdx.x) % kSide, team = static_cast<int>(threadIdx.x) / kSide;
  const unsigned stretch = blockIdx.x / job.beside;
  const int64_t first = int64_t{blockIdx.x % job.beside * kSide + side} * kColumns, left = job.columns - first;
  const int64_t begin = stretch * job.stretch;
  const int64_t end = begin + job.stretch < job.rows ? begin + job.stretch : job.rows;
  const int n = left < 0 ? 0 : left < kColumns ? static_cast<int>(left) : kColumns;
  float sum[kColumns] = {};
  int64_t row = n > 0 ? begin + team : end;
  if (job.packed)
    for (; row + (kAhead - 1) * kTeams < end; row += kAhead * kTeams) {
      Pack<T, kColumns> here[kAhead];
      MORTISE_UNROLL
      for (int i = 0; i < kAhead; ++i)
        here[i] = *reinterpret_cast<const Pack<T, kColumns>*>(job.x + (row + i * kTeams) * job.columns + first);
      MORTISE_UNROLL
      for (int i = 0; i < kAhead; ++i)
        for (int k = 0; k < kColumns; ++k) sum[k] += static_cast<float>(here[i].at[k]);
    }
  for (; row < end; row += kTeams) {
    T here[kColumns];
    read<kColumns>(job.x + row * job.columns + first, n, job.packed, here);
    for (int k = 0; k < kColumns; ++k) sum[k] += static_cast<float>(here[k]);
  }
  // The teams of a warp, then the warps.
  for (int k = 0; k < kColumns; ++k) {
    sum[k] += __shfl_xor_sync(0xFFFFFFFFu, sum[k], kSide);
    sum[k] += __shfl_xor_sync(0xFFFFFFFFu, sum[k], 2 * kSide);
    if (threadIdx.x % 32 < kSide) all[threadIdx.x / 32][side * kColumns + k] = sum[k];
  }
  __syncthreads();
  const int64_t column = int64_t{blockIdx.x % job.beside} * kSide * kColumns + threadIdx.x;
  if (threadIdx.x >= kSide * kColumns || column >= job.columns) return;
  float* const to = job.sums + stretch * job.columns + column;
  float whole = job.add ? *to : 0;
  for (int warp = 0; warp < kWarps; ++warp) whole += all[warp][threadIdx.x];
  *to = whole;
}

template <class T>
void launch(const T* x, int64_t rows, int64_t columns, int64_t stretches, bool add, float* sums, void* stream) {
  const int64_t beside = (columns + kSide * kPack<T> - 1) / (kSide * kPack<T>);
  const bool packed = reinterpret_cast<uintptr_t>(x) % 16 == 0 && columns % kPack<T> == 0;
  const Job<T> job = {x,      rows, columns, (rows + stretches - 1) / stretches, static_cast<unsigned>(beside),
                      packed, add,  sums};
  if (beside > 0) MORTISE_LAUNCH(sum_columns<T>, static_cast<unsigned>(beside * stretches), kThreads, stream, job);
}

template <class T>
void sum(const void* x, int64_t rows, int64_t columns, bool add, float* sums, float* scratch, void* stream) {
  const int64_t stretches = column_sum_stretches(rows, columns);
  const auto* from = static_cast<const T*>(x);
  if (stretches == 1) return launch(from, rows, columns, 1, add, sums, stream);
  launch(from, rows, columns, stretches, false, scratch, stream);
  launch<float>(scratch, stretches, columns, 1, add, sums, stream);
}

}  // namespace

const char* column_sum_cuda(uint32_t dtype, const void* x, int64_t rows, int64_t columns, bool add, float* sums,
                            float* scratch, void* stream) {
  switch (dtype) {
    case MORTISE_F32: sum<float>(x, rows, columns, add, sums, scratch, stream); break;
    case MORTISE_BF16: sum<BF16>(x, rows, columns, add, sums, scratch, stream); break;
    case MORTISE_F16: sum<F16>(x, rows, columns, add, sums, scratch, stream); break;
    default: return "a sum over rows has no kernel for this element type";
  }
  return launch_error();
}

}  // namespace mortise::kernels
