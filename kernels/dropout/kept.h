// For kernels of attention: which of eight probabilities dropout keeps.
#pragma once
#include "mortise/cuda/launch.hpp"
#include "mortise/philox.h"

namespace mortise::kernels {

// Of the eight from number `first` on, which stay: a bit each.
__device__ __forceinline__ uint32_t kept_of_eight(const mortise_philox& place, uint64_t first, uint32_t threshold) {
  uint16_t bits[8];
  const auto stay = [&](uint64_t block) {
    uint32_t mask = 0;
    mortise_philox_block(&place, block, bits);
    MORTISE_UNROLL
    for (int i = 0; i < 8; ++i) mask |= (bits[i] >= threshold ? 1u : 0u) << i;
    return mask;
  };
  const uint32_t shift = static_cast<uint32_t>(first % 8), mask = stay(first / 8);
  if (shift == 0) return mask;  // always, where the number of keys is a multiple of eight
  return (mask | stay(first / 8 + 1) << 8) >> shift & 255u;
}

}  // namespace mortise::kernels
