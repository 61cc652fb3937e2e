// Normal numbers of a Philox block: the arithmetic that the host's processor and CUDA share, so that both give the same
// bits. Logarithm, sine and cosine are therefore our own, of additions and products that are rounded one by one:
// -ffp-contract=off, --fmad=false; those of two libraries differ in the last bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "mortise/philox.h"

namespace mortise::kernels {

// Of a float from 2^-126 to 1. Coefficients: Moshier, Cephes Math Library, logf.
MORTISE_BOTH inline float noise_log(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // x = (1 + f) 2^e, with 1 + f between the roots of 1/2 and 2.
  const uint32_t from_root = bits - 0x3F3504F3u;
  const auto e = static_cast<float>(static_cast<int32_t>(from_root) >> 23);
  const uint32_t fraction = (from_root & 0x7FFFFFu) + 0x3F3504F3u;
  float f;
  std::memcpy(&f, &fraction, sizeof f);
  f -= 1;
  const float z = f * f;
  float y = 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  y = y * f * z - 2.12194440e-4f * e - 0.5f * z;  // the logarithm of 2 in two parts, the smaller one first
  return f + y + 0.693359375f * e;
}

struct NoiseDirection {
  float cosine, sine;
};

// Of word / 2^32 of a whole turn: a quarter, and at most an eighth around it. Coefficients: Moshier, Cephes, sinf and
// cosf.
MORTISE_BOTH inline NoiseDirection noise_direction(uint32_t word) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(word - (quarter << 30))) * 1.4629180792671596e-9f;
  const float z = x * x;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1;
  switch (quarter) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

// The four normals of a block.
MORTISE_BOTH inline void noise_block(const mortise_philox& place, uint64_t block, float out[4]) {
  uint32_t words[4];
  mortise_philox_words(place.key, static_cast<uint32_t>(block), place.site, place.step,
                       mortise_philox_last(&place, block), words);
  for (int pair = 0; pair < 2; ++pair) {
    const float uniform = static_cast<float>(static_cast<int64_t>(words[2 * pair]) + 1) * 0x1p-32f;  // above 0
    const float radius = std::sqrt(-2 * noise_log(uniform));
    const NoiseDirection direction = noise_direction(words[2 * pair + 1]);
    out[2 * pair] = radius * direction.cosine;
    out[2 * pair + 1] = radius * direction.sine;
  }
}

// In the step after `steps` others; gradients in memory are the true ones times `scale`.
MORTISE_BOTH inline double noise_deviation(double eta, double gamma, double scale, int64_t steps) {
  return scale * std::sqrt(eta / std::pow(1 + static_cast<double>(steps), gamma));
}

}  // namespace mortise::kernels
