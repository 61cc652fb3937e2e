// The cross-entropy of rows of logits, forward and gradient.
//
// Floor   4 bytes a logit in F32 forward (read it), 8 for the gradient (read it, write it); in BF16 2 and 4.
// Now     128 x 50,304 logits on one thread of a shared machine, in ms: F32 2.4 and 2.9 (10.6 and 17.7 GB/s, where a
//         copy makes 24), BF16 2.5 and 3.7, F16 4 and 16, F64 16 and 17; 2026-11-23, kernel_cross_entropy_bench 128.
//         ATen's log_softmax, nll_loss and their backward there, with the casts that 16 bits need: F32 12 and 50, BF16
//         16 and 27, F16 18 and 34, F64 26 and 104.
// Plan    one pass each: the label's logit is the reference (element.h), so none looks for the largest. e^x without
//         branches; partial sums in an array that stays in the first cache.
// No LibTorch headers: raw pointers.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <bit>

#include "kernels/clones.h"
#include "kernels/cross_entropy/element.h"

#define MORTISE_ALWAYS_INLINE [[gnu::always_inline]] inline

namespace mortise::kernels {
namespace {

// The sum of `n` lanes, a power of two; both arrays are overwritten.
template <class W>
MORTISE_ALWAYS_INLINE W sum_of_pairs(W* __restrict from, W* __restrict to, int64_t n) {
  for (; n > 1; n /= 2) {
    for (int64_t i = 0; i < n / 2; ++i) to[i] = from[2 * i] + from[2 * i + 1];
    std::swap(from, to);
  }
  return from[0];
}

template <class T, bool kPlain>
MORTISE_ALWAYS_INLINE RowSums<Wide<T>> row_sums(const T* __restrict x, int64_t n, Wide<T> reference) {
  using W = Wide<T>;
  alignas(64) W exps[kLanes], plain[kLanes], other[kLanes];
  const auto lanes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(n, kLanes))));
  std::fill_n(exps, lanes, W(0));
  if (kPlain) std::fill_n(plain, lanes, W(0));
  for (int64_t begin = 0; begin < n; begin += kLanes) {
    const int64_t some = std::min<int64_t>(kLanes, n - begin);
    for (int64_t i = 0; i < some; ++i) {
      const W d = static_cast<W>(x[begin + i]) - reference;
      exps[i] += exp_on_host(d);
      if (kPlain) plain[i] += d;
    }
  }
  return {sum_of_pairs(exps, other, lanes), kPlain ? sum_of_pairs(plain, other, lanes) : W(0)};
}

template <class T>
MORTISE_ALWAYS_INLINE Wide<T> largest(const T* x, int64_t n) {
  using W = Wide<T>;
  W most = -kInfinity<W>;
  for (int64_t i = 0; i < n; ++i) most = static_cast<W>(x[i]) > most ? static_cast<W>(x[i]) : most;
  return most;
}

template <class T, bool kPlain>
MORTISE_ALWAYS_INLINE void forward_row(const CrossEntropyRows& rows, const T* x, int64_t label, Wide<T>* loss,
                                       Wide<T>* statistics) {
  using W = Wide<T>;
  if (!is_class(label, rows.valid)) {
    *loss = statistics[0] = statistics[1] = label == kNoLabel ? W(0) : kNotANumber<W>;
    return;
  }
  const W of_label = static_cast<W>(x[label]);
  W reference = of_label;
  RowSums<W> sums = row_sums<T, kPlain>(x, rows.valid, reference);
  if (!(sums.exps < kInfinity<W>)) {
    reference = largest(x, rows.valid);
    sums = row_sums<T, kPlain>(x, rows.valid, reference);
  }
  const RowResult<W> result = row_result(sums, reference, of_label, rows.smoothing, rows.valid);
  *loss = result.loss;
  statistics[0] = reference;
  statistics[1] = result.log_sum;
}

template <class T>
MORTISE_ALWAYS_INLINE void forward(const CrossEntropyRows& rows, void* loss_, void* statistics_, int64_t begin,
                                   int64_t end) {
  auto* const loss = static_cast<Wide<T>*>(loss_);
  auto* const statistics = static_cast<Wide<T>*>(statistics_);
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(rows.logits) + row * rows.columns;
    if (rows.smoothing == 0) forward_row<T, false>(rows, x, rows.labels[row], loss + row, statistics + 2 * row);
    else forward_row<T, true>(rows, x, rows.labels[row], loss + row, statistics + 2 * row);
  }
}

template <class T>
MORTISE_ALWAYS_INLINE void backward(const CrossEntropyRows& rows, const void* statistics_, const void* scale,
                                    void* gradient_, int64_t begin, int64_t end) {
  using W = Wide<T>;
  const auto* const statistics = static_cast<const W*>(statistics_);
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(rows.logits) + row * rows.columns;
    T* const gradient = static_cast<T*>(gradient_) + row * rows.columns;
    int64_t learned = 0;
    if (rows.labels[row] != kNoLabel) {
      const RowGradient<W> of_row = row_gradient(statistics + 2 * row, *static_cast<const W*>(scale), rows.labels[row],
                                                 rows.smoothing, rows.valid);
      learned = rows.valid;
#pragma GCC ivdep  // the gradient may be the logits, element by element
      for (int64_t c = 0; c < learned; ++c) gradient[c] = gradient_element(of_row, x[c], c);
    }
    std::fill(gradient + learned, gradient + rows.columns, T{});
  }
}

// target_clones wants plain functions.
#define VERSION(name, T)                                                                                        \
  MORTISE_CLONES void forward_##name(const CrossEntropyRows& rows, void* loss, void* statistics, int64_t begin, \
                                     int64_t end) {                                                             \
    forward<T>(rows, loss, statistics, begin, end);                                                             \
  }                                                                                                             \
  MORTISE_CLONES void backward_##name(const CrossEntropyRows& rows, const void* statistics, const void* scale,  \
                                      void* gradient, int64_t begin, int64_t end) {                             \
    backward<T>(rows, statistics, scale, gradient, begin, end);                                                 \
  }
VERSION(f32, float)
VERSION(f64, double)
VERSION(bf16, BF16)
VERSION(f16, F16)
#undef VERSION

}  // namespace

void cross_entropy(const CrossEntropyRows& rows, void* loss, void* statistics, int64_t begin, int64_t end) {
  switch (rows.dtype) {
    case MORTISE_F64: return forward_f64(rows, loss, statistics, begin, end);
    case MORTISE_BF16: return forward_bf16(rows, loss, statistics, begin, end);
    case MORTISE_F16: return forward_f16(rows, loss, statistics, begin, end);
    default: return forward_f32(rows, loss, statistics, begin, end);
  }
}

void cross_entropy_gradient(const CrossEntropyRows& rows, const void* statistics, const void* scale, void* gradient,
                            int64_t begin, int64_t end) {
  switch (rows.dtype) {
    case MORTISE_F64: return backward_f64(rows, statistics, scale, gradient, begin, end);
    case MORTISE_BF16: return backward_bf16(rows, statistics, scale, gradient, begin, end);
    case MORTISE_F16: return backward_f16(rows, statistics, scale, gradient, begin, end);
    default: return backward_f32(rows, statistics, scale, gradient, begin, end);
  }
}

}  // namespace mortise::kernels
