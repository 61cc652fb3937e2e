// AdamW over arrays in fp32 or bf16: every rounding where torchdistx has it, one pass over memory.
//
// Floor   with p, g, m in fp32 and v in bf16: 24 bytes a parameter (read p, g, m, v; write p, m, v); all in bf16: 14.
// Plan    stretches of 512 elements as floats in the first cache, one arithmetic for all mixtures of dtypes.
// No LibTorch headers: raw pointers.
#include "kernels/adamw_anyprecision/adamw_anyprecision.h"

#include <algorithm>

#include "kernels/adamw_anyprecision/element.h"
#include "kernels/clones.h"
#include "kernels/floats/floats.h"

namespace mortise::kernels {
namespace {

constexpr int64_t kStretch = 512;

struct Stretch {
  float p[kStretch], g[kStretch], m[kStretch], v[kStretch], c[kStretch];
};

template <bool kKahan>
[[gnu::always_inline]] inline void update(const AnyPrecisionNumbers& numbers, Stretch& x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) anyprecision_element<kKahan>(numbers, x.g[i], x.p[i], x.m[i], x.v[i], x.c[i]);
}

template <bool kKahan>
[[gnu::always_inline]] inline void update_all(const AnyPrecisionStep& s, const AnyPrecisionArrays& a, int64_t begin,
                                              int64_t end) {
  const AnyPrecisionNumbers numbers =
      anyprecision_numbers(s, {a.p.dtype, a.m.dtype, a.v.dtype, a.compensation.dtype, a.g_dtype});
  Stretch x;
  for (int64_t at = begin; at < end; at += kStretch) {
    const int64_t n = std::min(kStretch, end - at);
    read_floats(a.p.dtype, a.p.data, at, n, x.p);
    read_floats(a.g_dtype, a.g, at, n, x.g);
    read_floats(a.m.dtype, a.m.data, at, n, x.m);
    read_floats(a.v.dtype, a.v.data, at, n, x.v);
    if constexpr (kKahan) read_floats(a.compensation.dtype, a.compensation.data, at, n, x.c);
    update<kKahan>(numbers, x, n);
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
