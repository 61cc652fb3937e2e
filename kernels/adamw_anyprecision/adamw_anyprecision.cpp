// AdamW over arrays in fp32 or bf16: every rounding where torchdistx has it, one pass over memory.
//
// Floor   with p, g, m in fp32 and v in bf16: 24 bytes a parameter (read p, g, m, v; write p, m, v); all in bf16: 14.
// Plan    stretches of 512 elements as floats in the first cache, one arithmetic for all mixtures of dtypes: whether a
//         line is rounded to bf16 is a mask, the same in all lanes, and no branch.
// No LibTorch headers: raw pointers.
#include "kernels/adamw_anyprecision/adamw_anyprecision.h"

#include <algorithm>
#include <cmath>

#include "kernels/clones.h"
#include "kernels/floats/floats.h"

namespace mortise::kernels {
namespace {

constexpr int64_t kStretch = 512;

// Rounds a float to bf16 and leaves it a float, or leaves it alone. A NaN stays as it is: writing it makes it bf16's.
struct Rounding {
  explicit Rounding(uint32_t dtype)
      : half(dtype == MORTISE_BF16 ? 0x7FFFu : 0), last(dtype == MORTISE_BF16 ? 1u : 0),
        kept(dtype == MORTISE_BF16 ? 0xFFFF0000u : ~0u) {}
  float operator()(float x) const {
    const uint32_t bits = mortise_float_bits(x);
    const float rounded = mortise_float_of_bits((bits + half + ((bits >> 16) & last)) & kept);
    return x != x ? x : rounded;
  }
  uint32_t half, last, kept;
};

struct Stretch {
  float p[kStretch], g[kStretch], m[kStretch], v[kStretch], c[kStretch];
};

template <bool kKahan>
[[gnu::always_inline]] inline void update(const AnyPrecisionStep& s, const AnyPrecisionArrays& a, Stretch& x,
                                          int64_t n) {
  const Rounding to_p(a.p.dtype), to_m(a.m.dtype), to_v(a.v.dtype), to_c(a.compensation.dtype);
  const auto multiplier = static_cast<float>(s.multiplier), decay = static_cast<float>(1 - s.lr * s.weight_decay);
  // torch adds `alpha * g` to m with an alpha of their common dtype.
  const Rounding common(a.m.dtype == a.g_dtype ? a.m.dtype : uint32_t{MORTISE_F32});
  const float beta1 = static_cast<float>(s.beta1), rest1 = common(static_cast<float>(1 - s.beta1));
  const auto beta2 = static_cast<float>(s.beta2), rest2 = static_cast<float>(1 - s.beta2);
  const auto root2 = static_cast<float>(std::sqrt(s.correction2)), eps = static_cast<float>(s.eps);
  const auto rate = static_cast<float>(-s.lr / s.correction1);
  for (int64_t i = 0; i < n; ++i) {
    const float g = x.g[i] * multiplier, p = to_p(x.p[i] * decay);
    const float m = to_m(to_m(x.m[i] * beta1) + rest1 * g);
    const float v = to_v(to_v(x.v[i] * beta2) + rest2 * g * g);
    const float d = to_v(to_v(to_v(std::sqrt(v)) / root2) + eps);
    x.m[i] = m;
    x.v[i] = v;
    if constexpr (kKahan) {
      const float c = to_c(x.c[i] + rate * m / d), q = to_p(p + c);
      x.c[i] = to_c(c + to_p(p - q));
      x.p[i] = q;
    } else {
      x.p[i] = to_p(p + rate * m / d);
    }
  }
}

template <bool kKahan>
[[gnu::always_inline]] inline void update_all(const AnyPrecisionStep& s, const AnyPrecisionArrays& a, int64_t begin,
                                              int64_t end) {
  Stretch x;
  for (int64_t at = begin; at < end; at += kStretch) {
    const int64_t n = std::min(kStretch, end - at);
    read_floats(a.p.dtype, a.p.data, at, n, x.p);
    read_floats(a.g_dtype, a.g, at, n, x.g);
    read_floats(a.m.dtype, a.m.data, at, n, x.m);
    read_floats(a.v.dtype, a.v.data, at, n, x.v);
    if constexpr (kKahan) read_floats(a.compensation.dtype, a.compensation.data, at, n, x.c);
    update<kKahan>(s, a, x, n);
    write_floats(a.p.dtype, a.p.data, at, n, x.p);
    write_floats(a.m.dtype, a.m.data, at, n, x.m);
    write_floats(a.v.dtype, a.v.data, at, n, x.v);
    if constexpr (kKahan) write_floats(a.compensation.dtype, a.compensation.data, at, n, x.c);
    if (a.copy) write_floats(MORTISE_BF16, a.copy, at, n, x.p);
  }
}

// target_clones wants plain functions.
MORTISE_CLONES void plain(const AnyPrecisionStep& s, const AnyPrecisionArrays& a, int64_t begin, int64_t end) {
  update_all<false>(s, a, begin, end);
}
MORTISE_CLONES void kahan(const AnyPrecisionStep& s, const AnyPrecisionArrays& a, int64_t begin, int64_t end) {
  update_all<true>(s, a, begin, end);
}

}  // namespace

void anyprecision_update(const AnyPrecisionStep& step, const AnyPrecisionArrays& a, int64_t begin, int64_t end) {
  (a.compensation.data ? kahan : plain)(step, a, begin, end);
}

}  // namespace mortise::kernels
