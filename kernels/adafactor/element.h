// Adafactor of one element, one row and one column: the arithmetic that the host's processor and CUDA share, so that
// both give the same bits. No operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include <cmath>

#include "kernels/adafactor/adafactor.h"

namespace mortise::kernels {

constexpr int64_t kAdafactorRows = 128, kAdafactorColumns = 1024;  // of a tile, by which sums are cut
constexpr int kAdafactorLanes = 8;  // in which the numbers of a row of a tile are added: number i into lane i % 8

MORTISE_INLINE int64_t adafactor_blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

// The numbers of step `t`, counted from 1.
MORTISE_INLINE AdafactorStep adafactor_step(const AdafactorSettings& s, double lr, double weight_decay,
                                            double multiplier, double t) {
  const double most = s.warmup_init ? 1e-6 * t : 1e-2, root = 1 / sqrt(t);
  const double relative = !s.relative_step ? 1 : root < most ? root : most;
  return {lr * relative, weight_decay, 1 - pow(t, s.decay_rate), multiplier};
}

// What a gradient adds to the means.
MORTISE_INLINE double adafactor_square(float g, double eps) {
  return static_cast<double>(g) * static_cast<double>(g) + eps;
}
MORTISE_INLINE float adafactor_average(double beta2, float state, double mean) {
  return static_cast<float>(beta2 * state + (1 - beta2) * mean);
}

// What a gradient is multiplied with to become U before it is clipped: of a matrix a row's times a column's.
MORTISE_INLINE float adafactor_row_factor(float row, double mean) {
  return static_cast<float>(1 / std::sqrt(row / mean));
}
MORTISE_INLINE float adafactor_column_factor(float column) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(column)));
}
MORTISE_INLINE float adafactor_vector_factor(float v) { return 1 / std::sqrt(v); }

// The rate of a parameter from the sum of its squared weights, and what U is multiplied with from that of its own.
MORTISE_INLINE double adafactor_rate(const AdafactorSettings& s, const AdafactorStep& step, double squares, double n) {
  if (!s.scale_parameter) return step.lr;
  const double scale = std::sqrt(squares / n);
  return step.lr * (s.least_scale < scale ? scale : s.least_scale);
}
MORTISE_INLINE double adafactor_clipped(const AdafactorSettings& s, double rate, double squares, double n) {
  const double share = std::sqrt(squares / n) / s.clip_threshold;
  return rate / (1 < share ? share : 1);
}

// A parameter's numbers in its update.
struct AdafactorNumbers {
  float factor, decay, beta1, rest1;
};
MORTISE_INLINE AdafactorNumbers adafactor_numbers(const AdafactorSettings& s, const AdafactorStep& step, double rate,
                                                  double clipped) {
  return {static_cast<float>(clipped), static_cast<float>(-step.weight_decay * rate), static_cast<float>(s.beta1),
          static_cast<float>(1 - s.beta1)};
}
MORTISE_INLINE float adafactor_moment(const AdafactorNumbers& k, float m, float u) { return m * k.beta1 + k.rest1 * u; }
MORTISE_INLINE float adafactor_weight(const AdafactorNumbers& k, float p, float u) { return p + k.decay * p - u; }

}  // namespace mortise::kernels
