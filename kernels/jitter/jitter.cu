// Factors around 1 of a whole tensor in one launch.
//
// Floor   4 bytes an element, written.
// Plan    a thread a Philox block: eight elements.
#include "kernels/jitter/jitter_cuda.h"

#include "kernels/jitter/element.h"
#include "mortise/cuda/launch.hpp"

namespace mortise::kernels {
namespace {

constexpr int kThreads = 256;

struct alignas(16) Eight {
  float at[8];
};

__global__ void __launch_bounds__(kThreads) draw(DevicePlace at, double amount, float* factor, int64_t n) {
  const int64_t block = int64_t{blockIdx.x} * kThreads + threadIdx.x, first = 8 * block;
  if (first >= n) return;
  const mortise_philox place = place_now(at);
  uint16_t bits[8];
  mortise_philox_block(&place, static_cast<uint64_t>(block), bits);
  Eight all;
  for (int k = 0; k < 8; ++k) all.at[k] = jitter_element(amount, bits[k]);
  if (first + 8 <= n && reinterpret_cast<uintptr_t>(factor) % sizeof(float[4]) == 0)
    *reinterpret_cast<Eight*>(factor + first) = all;
  else
    for (int k = 0; k < 8 && first + k < n; ++k) factor[first + k] = all.at[k];
}

}  // namespace

const char* jitter_cuda(const DevicePlace& place, double amount, float* factor, int64_t n, void* stream) {
  constexpr int64_t kOfABlock = 8 * kThreads;
  if (n > 0)
    MORTISE_LAUNCH(draw, static_cast<unsigned>((n + kOfABlock - 1) / kOfABlock), kThreads, stream, place, amount,
                   factor, n);
  return launch_error();
}

}  // namespace mortise::kernels
