#include "kernels/noise/noise.h"

#include <algorithm>

#include "kernels/floats/floats.h"
#include "kernels/noise/element.h"

namespace mortise::kernels {

void add_noise(const mortise_philox& place, double deviation, uint32_t dtype, void* x, int64_t first, int64_t begin,
               int64_t end) {
  constexpr int64_t kTile = 256;
  const auto factor = static_cast<float>(deviation);
  float noise[kTile], sum[kTile], four[4];
  for (int64_t at = begin; at < end; at += kTile) {
    const int64_t n = std::min(kTile, end - at);
    int64_t drawn = -1;  // the block whose numbers `four` holds
    for (int64_t i = 0; i < n; ++i) {
      const int64_t element = first + at + i;
      if (element / 4 != drawn) noise_block(place, static_cast<uint64_t>(drawn = element / 4), four);
      noise[i] = factor * four[element % 4];
    }
    if (dtype == MORTISE_F64) {
      for (int64_t i = 0; i < n; ++i) static_cast<double*>(x)[at + i] += static_cast<double>(noise[i]);
      continue;
    }
    read_floats(dtype, x, at, n, sum);
    for (int64_t i = 0; i < n; ++i) sum[i] += noise[i];
    write_floats(dtype, x, at, n, sum);
  }
}

}  // namespace mortise::kernels
