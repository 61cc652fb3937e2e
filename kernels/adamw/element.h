// AdamW of one element: the arithmetic that the host's processor and CUDA share, so that both give the same bits. No
// operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include <cmath>

#include "kernels/adamw/adamw.h"

namespace mortise::kernels {

// A step's numbers, the same for every element of a group.
template <class T>
struct AdamWNumbers {
  T multiplier, decay, weight, beta2, rest2, eps, rate, root2;
};

// torch's lerp begins at the nearer end.
MORTISE_INLINE bool adamw_is_near(double beta1) { return 1 - beta1 < 0.5; }

template <class T>
MORTISE_BOTH inline AdamWNumbers<T> adamw_numbers(const AdamWStep& s) {
  return {static_cast<T>(s.multiplier),
          static_cast<T>(1 - s.lr * s.weight_decay),
          static_cast<T>(adamw_is_near(s.beta1) ? 1 - s.beta1 : -s.beta1),
          static_cast<T>(s.beta2),
          static_cast<T>(1 - s.beta2),
          static_cast<T>(s.eps),
          static_cast<T>(-s.lr / s.correction1),
          static_cast<T>(std::sqrt(s.correction2))};
}

template <bool kNearM, class T>
MORTISE_BOTH inline void adamw_element(const AdamWNumbers<T>& k, T grad, T& p, T& m, T& v) {
  const T g = grad * k.multiplier;
  m = (kNearM ? m : g) + k.weight * (g - m);
  v = v * k.beta2 + k.rest2 * g * g;
  p = p * k.decay + k.rate * m / (std::sqrt(v) / k.root2 + k.eps);
}

}  // namespace mortise::kernels
