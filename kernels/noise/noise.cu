// Gaussian noise onto all gradients in one launch.
//
// Floor   8 bytes an element in F32 (read and write x), 4 in 16 bits. Ten rounds of Philox, two logarithms and two
//         directions for four elements cost about as much.
// Plan    a block a piece of a gradient; a thread a Philox block at a time, its four elements as one access. The step's
//         deviation once a block.
#include "kernels/noise/noise_cuda.h"

#include "kernels/bf16/bf16.h"
#include "kernels/cuda/place.h"
#include "kernels/cuda/slices.h"
#include "kernels/noise/element.h"

namespace mortise::kernels {
namespace {

struct F16 {
  uint16_t bits;
};

MORTISE_BOTH inline double plus(double x, float noise) { return x + static_cast<double>(noise); }
MORTISE_BOTH inline float plus(float x, float noise) { return x + noise; }
MORTISE_BOTH inline BF16 plus(BF16 x, float noise) { return BF16(static_cast<float>(x) + noise); }
MORTISE_BOTH inline F16 plus(F16 x, float noise) {
  return {mortise_f16_from_float(mortise_f16_to_float(x.bits) + noise)};
}

template <class T>
__device__ void add(const SliceTable<NoiseSlice>::Piece& piece, const mortise_philox& place, float factor) {
  const NoiseSlice& s = piece.slice;
  auto* const x = static_cast<T*>(s.x);
  // A Philox block has four elements of what the place numbers, which need not be the four of an access.
  const bool fours =
      (reinterpret_cast<uintptr_t>(x) - static_cast<uintptr_t>(s.first) * sizeof(T)) % sizeof(Four<T>) == 0;
  for (int64_t block = (s.first + piece.begin) / 4 + threadIdx.x; 4 * block < s.first + piece.end;
       block += kSliceThreads) {
    const int64_t i = 4 * block - s.first;
    const bool whole = fours && i >= piece.begin && i + 4 <= piece.end;
    Four<T> sum = {};
    if (whole) sum = *reinterpret_cast<const Four<T>*>(x + i);
    float noise[4];
    noise_block(place, static_cast<uint64_t>(block), noise);
    if (whole) {
      for (int k = 0; k < 4; ++k) sum.at[k] = plus(sum.at[k], factor * noise[k]);
      *reinterpret_cast<Four<T>*>(x + i) = sum;
    } else {
      for (int k = 0; k < 4; ++k)
        if (i + k >= piece.begin && i + k < piece.end) x[i + k] = plus(x[i + k], factor * noise[k]);
    }
  }
}

__global__ void __launch_bounds__(kSliceThreads)
    add_noise(const __grid_constant__ SliceTable<NoiseSlice> table, NoiseOfStep noise) {
  const auto piece = table.piece(static_cast<int32_t>(blockIdx.x));
  __shared__ float deviation;
  if (threadIdx.x == 0)
    deviation = static_cast<float>(noise_deviation(noise.eta, noise.gamma, *noise.scale, *noise.steps));
  __syncthreads();
  const float factor = deviation;
  const mortise_philox place = place_now({piece.slice.place, noise.steps});
  switch (piece.slice.dtype) {
    case MORTISE_F32: return add<float>(piece, place, factor);
    case MORTISE_F64: return add<double>(piece, place, factor);
    case MORTISE_BF16: return add<BF16>(piece, place, factor);
    default: return add<F16>(piece, place, factor);
  }
}

}  // namespace

const char* add_noise_cuda(const NoiseSlice* slices, int64_t n, const NoiseOfStep& noise, void* stream) {
  for_tables(slices, n, [&](const SliceTable<NoiseSlice>& table, int32_t blocks) {
    MORTISE_LAUNCH(add_noise, blocks, kSliceThreads, stream, table, noise);
  });
  return launch_error();
}

}  // namespace mortise::kernels
