// Jitter of one element: the arithmetic that the host's processor and CUDA share, so that both give the same bits. No
// operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include <cstdint>

#include "mortise/philox.h"

namespace mortise::kernels {

// Of the element's own sixteen bits: one of 65,536 numbers that lie evenly between 1 - amount and 1 + amount.
MORTISE_BOTH inline float jitter_element(double amount, uint16_t bits) {
  return static_cast<float>(1 + amount * ((2.0 * bits + 1) * 0x1p-16 - 1));
}

}  // namespace mortise::kernels
