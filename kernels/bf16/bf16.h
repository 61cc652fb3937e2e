// bfloat16 on the host's processor: the upper half of a float. Simple enough that loops over it vectorise.
#pragma once
#include <bit>
#include <cstdint>

namespace mortise::kernels {

struct BF16 {
  uint16_t bits;
  BF16() = default;
  // To the nearest, ties to even; a NaN stays one.
  explicit BF16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>(x != x ? 0x7FC0u : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(BF16) == 2);

}  // namespace mortise::kernels
