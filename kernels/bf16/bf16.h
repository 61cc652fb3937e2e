// bfloat16 as an element type, over mortise/half.h. Simple enough that loops over it vectorise.
#pragma once
#include <cstdint>

#include "mortise/half.h"

namespace mortise::kernels {

struct BF16 {
  uint16_t bits;
  BF16() = default;
  // To the nearest, ties to even; a NaN stays one.
  MORTISE_BOTH explicit BF16(float x) : bits(mortise_bf16_from_float(x)) {}
  MORTISE_BOTH explicit operator float() const { return mortise_bf16_to_float(bits); }
  MORTISE_BOTH explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(BF16) == 2);

}  // namespace mortise::kernels
