// Dropout of one element: the arithmetic that the host's processor and CUDA share, so that both give the same bits. No
// operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/bf16/bf16.h"
#include "mortise/philox.h"

namespace mortise::kernels {

struct DropoutNumbers {
  uint32_t threshold;
  double scale;
};

inline DropoutNumbers dropout_numbers(double p) {
  const uint32_t threshold = mortise_dropout_threshold(p);
  // Everything dropped: the scale would be 1 / 0.
  return {threshold, threshold < 65536 ? mortise_dropout_scale(p) : 0.0};
}

// What an element is computed in.
template <class T>
using DropoutWide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// `bits` are the element's own sixteen; without kAdd nobody reads `residual`.
template <bool kAdd, class X, class Y>
MORTISE_BOTH inline Y dropout_element(X x, Y residual, uint32_t bits, uint32_t threshold, DropoutWide<X> scale) {
  using T = DropoutWide<X>;
  const T kept = static_cast<T>(x) * (bits >= threshold ? scale : T(0));
  return static_cast<Y>(kAdd ? static_cast<T>(residual) + kept : kept);
}

}  // namespace mortise::kernels
