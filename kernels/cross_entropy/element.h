// The cross-entropy of one logit: the arithmetic that the host's processor and CUDA share.
//
// Everything is relative to a reference R of the row: the label's logit x_y. Then sum(e^(x - R)) is at least 1, and its
// logarithm L is the loss itself, so no pass looks for the largest logit first. Where the sum overflows, at a loss of
// 88 in F32, the row is summed again with R the largest logit.
//
// The sum has kLanes partial sums, of the columns that are equal modulo kLanes; neighbours are then added pair by pair:
// a GPU's threads have eight lanes each, a processor's vectors go over all of them.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/bf16/bf16.h"
#include "kernels/f16/f16.h"

namespace mortise::kernels {

constexpr int kLanes = 2048;

template <class W>
constexpr W kInfinity = std::numeric_limits<W>::infinity();
template <class W>
constexpr W kNotANumber = std::numeric_limits<W>::quiet_NaN();

// What a logit is computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// e^d on the host's processor, so that its loops vectorise and every machine has the same bits: d = n log(2) + r, and
// e^r is a polynomial. 0 below -87 (-708), infinite above 88 (709). F32: Moshier, Cephes Math Library, expf; F64:
// Taylor's.
[[gnu::always_inline]] inline float exp_on_host(float d) {
  constexpr float kMagic = 0x1.8p23f;  // whole numbers that are added to it come out in the low bits
  const float shifted = d * 1.44269504088896341f + kMagic;
  const float n = shifted - kMagic;
  const float r = d - n * 0.693359375f - n * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1;
  const uint32_t power = (mortise_float_bits(shifted) << 23) + (127u << 23);
  y *= mortise_float_of_bits(power);
  y = d < -87 ? 0 : y;
  return d > 88 ? kInfinity<float> : y;
}
[[gnu::always_inline]] inline double exp_on_host(double d) {
  constexpr double kMagic = 0x1.8p52;
  const double shifted = d * 1.4426950408889634074 + kMagic;
  const double n = shifted - kMagic;
  const double r = d - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
  double y = 1.0 / 6227020800;
  y = y * r + 1.0 / 479001600;
  y = y * r + 1.0 / 39916800;
  y = y * r + 1.0 / 3628800;
  y = y * r + 1.0 / 362880;
  y = y * r + 1.0 / 40320;
  y = y * r + 1.0 / 5040;
  y = y * r + 1.0 / 720;
  y = y * r + 1.0 / 120;
  y = y * r + 1.0 / 24;
  y = y * r + 1.0 / 6;
  y = y * r + 0.5;
  y = y * r * r + r + 1;
  uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const uint64_t power = (bits << 52) + (uint64_t{1023} << 52);
  double factor;
  std::memcpy(&factor, &power, sizeof factor);
  y *= factor;
  y = d < -708 ? 0 : y;
  return d > 709 ? kInfinity<double> : y;
}

#ifdef __CUDA_ARCH__
__device__ inline float exp_of(float d) { return __expf(d); }
__device__ inline double exp_of(double d) { return exp(d); }
#else
template <class W>
[[gnu::always_inline]] inline W exp_of(W d) {
  return exp_on_host(d);
}
#endif

template <class W>
MORTISE_BOTH inline W log_of(W sum) {
  return static_cast<W>(log(static_cast<double>(sum)));
}

MORTISE_BOTH inline bool is_class(int64_t label, int64_t valid) { return label >= 0 && label < valid; }

// What a row's classes sum up to, relative to R.
template <class W>
struct RowSums {
  W exps;   // of e^(x - R)
  W plain;  // of x - R; only for smoothing
};

template <class W>
struct RowResult {
  W loss, log_sum;
};

// `label` is the label's logit.
template <class W>
MORTISE_BOTH inline RowResult<W> row_result(const RowSums<W>& sums, W reference, W label, double smoothing,
                                            int64_t valid) {
  const W log_sum = log_of(sums.exps), of_label = reference - label + log_sum;
  if (smoothing == 0) return {of_label, log_sum};
  const W of_all = log_sum - sums.plain / static_cast<W>(valid);
  return {static_cast<W>(1 - smoothing) * of_label + static_cast<W>(smoothing) * of_all, log_sum};
}

// The gradient of a row's loss, times `scale`: what all its logits share.
template <class W>
struct RowGradient {
  W reference, log_sum, scale;
  W at_label, elsewhere;  // the target
  int64_t label;
};
template <class W>
MORTISE_BOTH inline RowGradient<W> row_gradient(const W* statistics, W scale, int64_t label, double smoothing,
                                                int64_t valid) {
  const double elsewhere = smoothing / static_cast<double>(valid);
  return {statistics[0], statistics[1], scale, static_cast<W>(1 - smoothing + elsewhere), static_cast<W>(elsewhere),
          label};
}
template <class T>
[[gnu::always_inline]] MORTISE_BOTH inline T gradient_element(const RowGradient<Wide<T>>& row, T x, int64_t column) {
  const Wide<T> p = exp_of(static_cast<Wide<T>>(x) - row.reference - row.log_sum);
  return static_cast<T>((p - (column == row.label ? row.at_label : row.elsewhere)) * row.scale);
}

}  // namespace mortise::kernels
