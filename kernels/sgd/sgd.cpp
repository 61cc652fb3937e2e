// SGD of one pass over memory.
//
// Floor   12 bytes a parameter in F32 (read p, g; write p), 20 with momentum. Plain SSE2 reaches it: no root, no
//         division.
// No LibTorch headers: raw pointers.
#include "kernels/sgd/sgd.h"

#include "kernels/bf16/bf16.h"
#include "kernels/sgd/element.h"

namespace mortise::kernels {
namespace {

template <class T, class G, bool kMomentum, bool kNesterov>
void update(const SGDStep& s, const SGDArrays& a, int64_t begin, int64_t end) {
  T* __restrict p = static_cast<T*>(a.p), * __restrict b = static_cast<T*>(a.b);
  const G* __restrict grad = static_cast<const G*>(a.g);
  const SGDNumbers<T> numbers = sgd_numbers<T>(s);
  for (int64_t i = begin; i < end; ++i) {
    if constexpr (kMomentum) sgd_element<kNesterov>(numbers, static_cast<T>(grad[i]), p[i], b[i]);
    else sgd_element(numbers, static_cast<T>(grad[i]), p[i]);
  }
  // While the piece is still in the cache.
  BF16* __restrict copy = reinterpret_cast<BF16*>(a.copy);
  if (copy)
    for (int64_t i = begin; i < end; ++i) copy[i] = BF16(static_cast<float>(p[i]));
}

template <class T, class G>
void update(const SGDStep& s, const SGDArrays& a, int64_t begin, int64_t end) {
  if (!a.b) return update<T, G, false, false>(s, a, begin, end);
  s.nesterov ? update<T, G, true, true>(s, a, begin, end) : update<T, G, true, false>(s, a, begin, end);
}

}  // namespace

void sgd_update(const SGDStep& step, const SGDArrays& a, int64_t begin, int64_t end) {
  using Version = void (*)(const SGDStep&, const SGDArrays&, int64_t, int64_t);
  static constexpr Version kVersions[2][3] = {{update<float, float>, update<float, double>, update<float, BF16>},
                                              {update<double, float>, update<double, double>, update<double, BF16>}};
  const int grad = a.grad == MORTISE_F32 ? 0 : a.grad == MORTISE_F64 ? 1 : 2;
  kVersions[a.master == MORTISE_F64][grad](step, a, begin, end);
}

}  // namespace mortise::kernels
