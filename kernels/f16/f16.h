// float16 as an element type: the numbers of mortise/half.h, without branches, so that loops over it vectorise.
#pragma once
#include <cstdint>

#include "mortise/half.h"

namespace mortise::kernels {

struct F16 {
  uint16_t bits;
  F16() = default;
  // To the nearest, ties to even; a NaN stays one.
  MORTISE_BOTH explicit F16(float x) {
    const uint32_t all = mortise_float_bits(x), sign = (all >> 16) & 0x8000u, size = all & 0x7FFFFFFFu;
    // Beside 1/2 the last bit of a float is 2^-24, that of a float16 below its smallest normal number.
    const uint32_t small = mortise_float_bits(mortise_float_of_bits(size) + 0.5f) - 0x3F000000u;
    const uint32_t normal = (size - 0x38000000u + 0xFFFu + ((size >> 13) & 1u)) >> 13;
    const uint32_t finite = either(size < 0x38800000u, small, normal);
    const uint32_t number = either(size < 0x477FF000u, finite, 0x7C00u);
    bits = static_cast<uint16_t>(sign | either(size > 0x7F800000u, 0x7E00u, number));
  }
  MORTISE_BOTH explicit operator float() const {
    const uint32_t all = bits, sign = (all & 0x8000u) << 16, size = all & 0x7FFFu;
    const uint32_t small = mortise_float_bits(static_cast<float>(static_cast<int32_t>(size)) * 0x1p-24f);
    const uint32_t finite = either(size < 0x400u, small, (size << 13) + (112u << 23));
    const uint32_t beyond = (size << 13) | either(size > 0x7C00u, 0x7FC00000u, 0x7F800000u);
    return mortise_float_of_bits(sign | either(size < 0x7C00u, finite, beyond));
  }

 private:
  // `a ? b : c` becomes a branch.
  MORTISE_BOTH static uint32_t either(bool a, uint32_t b, uint32_t c) {
    const uint32_t mask = 0u - static_cast<uint32_t>(a);
    return (b & mask) | (c & ~mask);
  }
};
static_assert(sizeof(F16) == 2);

}  // namespace mortise::kernels
