// Dropout of a whole tensor in one launch.
//
// Floor   8 bytes an element in F32 (read x, write y), 12 with the residual; in BF16 4 and 6. Ten rounds of Philox for
//         eight elements hide behind that.
// Plan    a thread a Philox block: its eight elements as accesses of sixteen bytes, under way before the rounds begin.
// Now     see docs/measurements.md.
#include "kernels/dropout/dropout_cuda.h"

#include "kernels/dropout/element.h"
#include "mortise/cuda/launch.hpp"

namespace mortise::kernels {
namespace {

constexpr int kThreads = 256;

struct Job {
  DevicePlace place;
  DropoutNumbers numbers;
  const void *x, *residual;
  void* y;
  int64_t begin, end;
  bool aligned;  // the elements 0, to sixteen bytes
};

// The elements of a block.
template <class T>
struct alignas(16) Eight {
  T at[8];
};

template <class X, class Y, bool kAdd>
__global__ void __launch_bounds__(kThreads) drop(const __grid_constant__ Job job) {
  const int64_t block = job.begin / 8 + int64_t{blockIdx.x} * kThreads + threadIdx.x, first = 8 * block;
  if (first >= job.end) return;
  const auto* x = static_cast<const X*>(job.x) + first;
  const auto* residual = static_cast<const Y*>(job.residual) + (kAdd ? first : 0);
  auto* y = static_cast<Y*>(job.y) + first;
  const bool whole = job.aligned && first >= job.begin && first + 8 <= job.end;
  Eight<X> from = {};
  Eight<Y> added = {};
  if (whole) {
    from = *reinterpret_cast<const Eight<X>*>(x);
    if (kAdd) added = *reinterpret_cast<const Eight<Y>*>(residual);
  }
  const mortise_philox place = place_now(job.place);
  uint16_t bits[8];
  mortise_philox_block(&place, static_cast<uint64_t>(block), bits);
  const uint32_t threshold = job.numbers.threshold;
  const auto scale = static_cast<DropoutWide<X>>(job.numbers.scale);
  if (whole) {
    Eight<Y> to;
    for (int k = 0; k < 8; ++k) to.at[k] = dropout_element<kAdd>(from.at[k], added.at[k], bits[k], threshold, scale);
    *reinterpret_cast<Eight<Y>*>(y) = to;
    return;
  }
  for (int k = 0; k < 8; ++k)
    if (first + k >= job.begin && first + k < job.end)
      y[k] = dropout_element<kAdd>(x[k], kAdd ? residual[k] : Y(), bits[k], threshold, scale);
}

}  // namespace

const char* dropout_cuda(const DevicePlace& place, double p, uint32_t x_dtype, const void* x, const void* residual,
                         uint32_t y_dtype, void* y, int64_t begin, int64_t end, void* stream) {
  using Kernel = void (*)(const Job);
  struct Row {
    uint32_t x, y;
    Kernel plain, add;
  };
  static const Row rows[] = {{MORTISE_F32, MORTISE_F32, drop<float, float, false>, drop<float, float, true>},
                             {MORTISE_F64, MORTISE_F64, drop<double, double, false>, drop<double, double, true>},
                             {MORTISE_BF16, MORTISE_BF16, drop<BF16, BF16, false>, drop<BF16, BF16, true>},
                             {MORTISE_BF16, MORTISE_F32, drop<BF16, float, false>, drop<BF16, float, true>},
                             {MORTISE_F32, MORTISE_BF16, drop<float, BF16, false>, drop<float, BF16, true>}};
  const auto all =
      reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(residual) | reinterpret_cast<uintptr_t>(y);
  const Job job = {place, dropout_numbers(p), x, residual, y, begin, end, all % 16 == 0};
  for (const Row& row : rows) {
    if (row.x != x_dtype || row.y != y_dtype) continue;
    const Kernel kernel = residual ? row.add : row.plain;
    const int64_t threads = (end + 7) / 8 - begin / 8;
    if (begin < end)
      MORTISE_LAUNCH(kernel, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, stream, job);
    return launch_error();
  }
  return "dropout has no kernel for these element types";
}

}  // namespace mortise::kernels
