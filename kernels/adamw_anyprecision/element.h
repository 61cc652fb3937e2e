// AdamW in any precision, of one element: the arithmetic that the host's processor and CUDA share, so that both give
// the same bits. No operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include <cmath>

#include "kernels/adamw_anyprecision/adamw_anyprecision.h"
#include "mortise/half.h"

namespace mortise::kernels {

// Rounds a float to bf16 and leaves it a float, or leaves it alone: by a mask that is the same for all elements, and no
// branch. A NaN stays as it is: writing it makes it bf16's.
struct Rounding {
  Rounding() = default;
  MORTISE_BOTH explicit Rounding(uint32_t dtype)
      : half(dtype == MORTISE_BF16 ? 0x7FFFu : 0), last(dtype == MORTISE_BF16 ? 1u : 0),
        kept(dtype == MORTISE_BF16 ? 0xFFFF0000u : ~0u) {}
  MORTISE_BOTH float operator()(float x) const {
    const uint32_t bits = mortise_float_bits(x);
    const float rounded = mortise_float_of_bits((bits + half + ((bits >> 16) & last)) & kept);
    return x != x ? x : rounded;
  }
  uint32_t half, last, kept;
};

// A step's numbers, the same for every element of a parameter.
struct AnyPrecisionNumbers {
  Rounding to_p, to_m, to_v, to_c;
  float multiplier, decay, beta1, rest1, beta2, rest2, root2, eps, rate;
};

MORTISE_BOTH inline AnyPrecisionNumbers anyprecision_numbers(const AnyPrecisionStep& s, const AnyPrecisionDtypes& d) {
  // torch adds `alpha * g` to m with an alpha of their common dtype.
  const Rounding common(d.m == d.g ? d.m : uint32_t{MORTISE_F32});
  return {Rounding(d.p),
          Rounding(d.m),
          Rounding(d.v),
          Rounding(d.compensation),
          static_cast<float>(s.multiplier),
          static_cast<float>(1 - s.lr * s.weight_decay),
          static_cast<float>(s.beta1),
          common(static_cast<float>(1 - s.beta1)),
          static_cast<float>(s.beta2),
          static_cast<float>(1 - s.beta2),
          static_cast<float>(std::sqrt(s.correction2)),
          static_cast<float>(s.eps),
          static_cast<float>(-s.lr / s.correction1)};
}

// `c`, the compensation, is that of Kahan summation; without it nothing is read or written there.
template <bool kKahan>
MORTISE_BOTH inline void anyprecision_element(const AnyPrecisionNumbers& k, float grad, float& p, float& m, float& v,
                                              float& c) {
  const float g = grad * k.multiplier, decayed = k.to_p(p * k.decay);
  m = k.to_m(k.to_m(m * k.beta1) + k.rest1 * g);
  v = k.to_v(k.to_v(v * k.beta2) + k.rest2 * g * g);
  const float d = k.to_v(k.to_v(k.to_v(std::sqrt(v)) / k.root2) + k.eps);
  if constexpr (kKahan) {
    const float kept = k.to_c(c + k.rate * m / d);
    p = k.to_p(decayed + kept);
    c = k.to_c(kept + k.to_p(decayed - p));
  } else {
    p = k.to_p(decayed + k.rate * m / d);
  }
}

}  // namespace mortise::kernels
