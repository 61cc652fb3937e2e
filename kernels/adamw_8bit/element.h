// AdamW with 8-bit means, of one element, and the maps of these: what the host's processor and CUDA share, so that both
// give the same bits. No operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include <cfloat>
#include <cmath>

#include "kernels/adamw_8bit/adamw_8bit.h"
#include "mortise/half.h"

namespace mortise::kernels {

// ---- maps ----

// torch.linspace(0.1, 1, n + 1), in fp32: from the nearer end, each point rounded once.
MORTISE_BOTH inline float dynamic_boundary(int at, int n) {
  const float first = 0.1f, step = (1 - first) / static_cast<float>(n);
  const auto d = static_cast<double>(step);
  return static_cast<float>(at < (n + 1) / 2 ? static_cast<double>(first) + d * at : 1 - d * (n - at));
}

// Value `at` of those that are not negative, ascending, from 0; of the signed map there are 129, of the other 256.
template <bool kSigned>
MORTISE_BOTH inline float dynamic_value(int at) {
  constexpr float kDecades[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  if (at == 0) return 0;
  int decade = 0, n = kSigned ? 1 : 2, part = at - 1;  // the means of a decade, and which it is
  for (; part >= n; n *= 2, ++decade) part -= n;
  if (decade == 7) return 1;
  return kDecades[decade] * ((dynamic_boundary(part, n) + dynamic_boundary(part + 1, n)) / 2);
}

// The index of the value nearest to an x in [0, 1], without a search. Floats that share their upper 16 bits form a row;
// values are so far apart that at most one border between two of them falls into a row. An entry is the index for the
// row's first float, times 2^16, plus what its lower 16 bits must exceed for a carry into the next index.
struct Nearest {
  static constexpr uint32_t kLeast = 0x34000000u;  // 2^-23: what is smaller is nearest to 0, in both maps
  static constexpr uint32_t kMost = 0x3F80FFFFu;   // 1, and what rounding made of it
  static constexpr uint32_t kRows = ((kMost - kLeast) >> 16) + 1;
  uint32_t rows[kRows];

  // The rows that begin with index `at`. `ascending` has n values and begins with 0; `odd` says whether its first index
  // is odd, as far as ties are concerned.
  MORTISE_BOTH void fill(const float* ascending, int n, bool odd, int at) {
    const auto last = [&](int index) {  // the last float that is nearest to it
      return mortise_float_bits((ascending[index] + ascending[index + 1]) * 0.5f) - ((index % 2 == 0) == odd);
    };
    const bool ends = at + 1 < n;
    const uint32_t first = at == 0 ? 0 : ((last(at - 1) - kLeast) >> 16) + 1;
    const uint32_t end = ends ? ((last(at) - kLeast) >> 16) + 1 : kRows;
    for (uint32_t r = first; r < end; ++r) rows[r] = static_cast<uint32_t>(at) << 16;
    if (ends && first < end) rows[end - 1] += 0xFFFFu - ((last(at) - kLeast) & 0xFFFFu);
  }
  // Of x in [0, 1]; what a scale that was not made here may lead to, Inf or NaN, is within the table too.
  MORTISE_BOTH static uint32_t position(float x) {
    const uint32_t bits = mortise_float_bits(x), least = bits < kLeast ? kLeast : bits;
    return (least < kMost ? least : kMost) - kLeast;
  }
  MORTISE_BOTH uint32_t index(uint32_t position) const { return (rows[position >> 16] + (position & 0xFFFFu)) >> 16; }
};

// What a value is multiplied with to find its index.
MORTISE_BOTH inline float adamw_8bit_inverse(float scale) { return scale < FLT_MIN ? 0 : 1 / scale; }

// An index of the signed map, from that of the magnitude and the number itself: a negative one never gets that of 0.
MORTISE_BOTH inline uint8_t adamw_8bit_signed(uint32_t magnitude, float x) {
  const auto k = static_cast<int32_t>(magnitude), negative = static_cast<int32_t>(mortise_float_bits(x)) >> 31;
  const int32_t least = k < 1 ? 1 : k, below = kZeroOfSignedMap - (least < 127 ? least : 127);
  return static_cast<uint8_t>((below & negative) | ((kZeroOfSignedMap + k) & ~negative));
}

// ---- the update ----

// A step's numbers, the same for every element of a group.
struct AdamW8BitNumbers {
  float multiplier, decay, beta1, rest1, beta2, rest2, eps, rate;
};

MORTISE_BOTH inline AdamW8BitNumbers adamw_8bit_numbers(const AdamWStep& s) {
  return {static_cast<float>(s.multiplier),
          static_cast<float>(1 - s.lr * s.weight_decay),
          static_cast<float>(s.beta1),
          static_cast<float>(1 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1 - s.beta2),
          static_cast<float>(std::sqrt(s.correction2) * s.eps),
          static_cast<float>(-s.lr * std::sqrt(s.correction2) / s.correction1)};
}

// m and v come without their scales. `kClears`: what is not finite leaves both 0, and p alone.
template <bool kClears>
MORTISE_BOTH inline void adamw_8bit_element(const AdamW8BitNumbers& f, float m_scale, float v_scale, float grad,
                                            float& p, float& m, float& v) {
  const float g = grad * f.multiplier;
  const float m1 = m * m_scale * f.beta1 + f.rest1 * g;
  const float v1 = v * v_scale * f.beta2 + f.rest2 * g * g;
  const float p1 = (p + f.rate * (m1 / (std::sqrt(v1) + f.eps))) * f.decay;
  const bool kept = !kClears || v1 <= FLT_MAX;
  m = kept ? m1 : 0;
  v = kept ? v1 : 0;
  p = kept ? p1 : p;
}

}  // namespace mortise::kernels
