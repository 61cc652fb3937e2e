// AdamW with 8-bit means: a block of 256 elements becomes floats in the first cache, is updated, and becomes indices.
//
// Floor   16 bytes a parameter (read p, g, m, v; write p, m, v), where AdamW in fp32 has 28.
// Now     1.83 ns a parameter on one thread of an EPYC 9005, 32 M parameters; the tables are the limit, not the memory.
//         Beside it torch 2.11's AdamW in fp32, one tensor: fused 0.50, foreach 3.6, neither (the default) 5.0;
//         kernels/adamw 0.50. With 4 M parameters 1.87, and 0.46, 1.84, 5.45, 0.47. 2026-11-22,
//         kernel_adamw_8bit_bench 32, but seconds of the thread's processor instead of the wall's, because the machine
//         was shared. On two threads, quiet, by the wall: 37.6 ms, kernels/adamw 15.7.
// Plan    the arithmetic and what lies around the tables vectorise; the nearest value is one load from a table, without
//         a search and without a branch.
// Tried   with 4 M parameters, a branch on the sign: 7 ns. Loops over the tables that do not vectorise: 2.0 ns.
//         Intrinsics of AVX-512: maps in registers 1.69, the table of rows by gathers as well 1.41, a search in
//         registers instead of it 1.87: a second way through everything, for a quarter of an update.
// No LibTorch headers: raw pointers.
#include "kernels/adamw_8bit/adamw_8bit.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/clones.h"
#include "kernels/floats/floats.h"

namespace mortise::kernels {
namespace {

constexpr int kDecades = 7;

// torch.linspace(0.1, 1, n + 1), in fp32: from the nearer end, each point rounded once.
float boundary(int at, int n) {
  const float first = 0.1f, step = (1 - first) / static_cast<float>(n);
  const auto d = static_cast<double>(step);
  return static_cast<float>(at < (n + 1) / 2 ? static_cast<double>(first) + d * at : 1 - d * (n - at));
}

std::array<float, 256> make_map(bool is_signed) {
  std::vector<float> values = {0, 1};
  for (int decade = 0; decade < kDecades; ++decade) {
    const auto factor = static_cast<float>(std::pow(10.0, decade + 1 - kDecades));
    const int n = 1 << (is_signed ? decade : decade + 1);
    for (int i = 0; i < n; ++i) {
      const float mean = factor * ((boundary(i, n) + boundary(i + 1, n)) / 2);
      values.push_back(mean);
      if (is_signed) values.push_back(-mean);
    }
  }
  std::array<float, 256> map{};
  std::sort(values.begin(), values.end());
  std::copy_n(values.begin(), map.size(), map.begin());
  return map;
}

// The index of the value nearest to an x in [0, 1], without a search. Floats that share their upper 16 bits form a row;
// values are so far apart that at most one border between two of them falls into a row. An entry is the index for the
// row's first float, times 2^16, plus what its lower 16 bits must exceed for a carry into the next index.
struct Nearest {
  static constexpr uint32_t kLeast = 0x34000000u;  // 2^-23: what is smaller is nearest to 0, in both maps
  static constexpr uint32_t kMost = 0x3F80FFFFu;   // 1, and what rounding made of it
  static constexpr uint32_t kRows = ((kMost - kLeast) >> 16) + 1;
  std::array<uint32_t, kRows> rows{};

  // `ascending` begins with 0; `odd` says whether the first index is odd, as far as ties are concerned.
  Nearest(const float* ascending, size_t n, bool odd) {
    size_t index = 0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t first = kLeast + (r << 16);
      rows[r] = static_cast<uint32_t>(index) << 16;
      if (index + 1 == n) continue;
      const uint32_t middle = std::bit_cast<uint32_t>((ascending[index] + ascending[index + 1]) * 0.5f);
      const uint32_t last = middle - ((index % 2 == 0) == odd);  // the last float that is nearest to this index
      if (last >= first + 0x10000u) continue;
      rows[r] += 0xFFFFu - (last - first);
      ++index;
    }
  }
  // Of x in [0, 1]; what a scale that was not made here may lead to, Inf or NaN, is within the table too.
  static uint32_t position(float x) { return std::clamp(std::bit_cast<uint32_t>(x), kLeast, kMost) - kLeast; }
  uint32_t index(uint32_t position) const { return (rows[position >> 16] + (position & 0xFFFFu)) >> 16; }
};

struct Maps {
  std::array<float, 256> with_sign = make_map(true), without = make_map(false);
  Nearest magnitude{&with_sign[kZeroOfSignedMap], 256 - kZeroOfSignedMap, true}, whole{without.data(), 256, false};
};
const Maps& maps() {
  static const Maps all;
  return all;
}

// Floats of a block: where they lie, or in the cache if they lie there as something else.
struct Block {
  float p_cache[kAdamW8BitBlock], g_cache[kAdamW8BitBlock], m_cache[kAdamW8BitBlock], v_cache[kAdamW8BitBlock];
  float *p = p_cache, *m = m_cache, *v = v_cache;
  const float* g = g_cache;
};

// The factors of a step in fp32; those of m and v hold for what is in the block, in which scales are not yet in.
struct Factors {
  explicit Factors(const AdamWStep& s)
      : multiplier(static_cast<float>(s.multiplier)), decay(static_cast<float>(1 - s.lr * s.weight_decay)),
        beta1(static_cast<float>(s.beta1)), rest1(static_cast<float>(1 - s.beta1)), beta2(static_cast<float>(s.beta2)),
        rest2(static_cast<float>(1 - s.beta2)), eps(static_cast<float>(std::sqrt(s.correction2) * s.eps)),
        rate(static_cast<float>(-s.lr * std::sqrt(s.correction2) / s.correction1)) {}
  float multiplier, decay, beta1, rest1, beta2, rest2, eps, rate, m_scale = 1, v_scale = 1;
};

template <bool kClears>
[[gnu::always_inline]] inline void update(const Factors& f, Block& x, int64_t n) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float* __restrict grad = x.g;
  float* __restrict p = x.p, * __restrict m = x.m, * __restrict v = x.v;
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * f.multiplier;
    const float m1 = m[i] * f.m_scale * f.beta1 + f.rest1 * g;
    const float v1 = v[i] * f.v_scale * f.beta2 + f.rest2 * g * g;
    const float p1 = (p[i] + f.rate * (m1 / (std::sqrt(v1) + f.eps))) * f.decay;
    const bool kept = !kClears || v1 < kInfinity;
    m[i] = kept ? m1 : 0;
    v[i] = kept ? v1 : 0;
    p[i] = kept ? p1 : p[i];
  }
}

// Of finite numbers: their bits without the sign are ordered as they are.
[[gnu::always_inline]] inline float largest(const float* x, int64_t n) {
  int32_t bits = 0;
  for (int64_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(bits);
}

[[gnu::always_inline]] inline float inverse(float scale) { return scale < FLT_MIN ? 0 : 1 / scale; }

[[gnu::always_inline]] inline void read_block(const AdamW8BitArrays& a, int64_t at, int64_t n, Block& x) {
  if (a.master == MORTISE_F32) x.p = static_cast<float*>(a.p) + at;
  else read_floats(a.master, a.p, at, n, x.p);
  if (a.grad == MORTISE_F32) x.g = static_cast<const float*>(a.g) + at;
  else read_floats(a.grad, a.g, at, n, x.g_cache);
}
[[gnu::always_inline]] inline void write_block(const AdamW8BitArrays& a, int64_t at, int64_t n, const Block& x) {
  if (a.master != MORTISE_F32) write_floats(a.master, a.p, at, n, x.p);
  if (a.copy) write_floats(MORTISE_BF16, a.copy, at, n, x.p);
}

[[gnu::always_inline]] inline void look_up(const float* __restrict map, const uint8_t* __restrict from, int64_t n,
                                           float* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = map[from[i]];
}

// In three loops without a branch, so that each vectorises.
template <bool kSigned>
[[gnu::always_inline]] inline void quantise(const Nearest& nearest, const float* __restrict x, float scale, int64_t n,
                                            uint8_t* __restrict to) {
  const float factor = inverse(scale);
  uint32_t index[kAdamW8BitBlock];
  for (int64_t i = 0; i < n; ++i) index[i] = Nearest::position(std::fabs(x[i]) * factor);
  for (int64_t i = 0; i < n; ++i) index[i] = nearest.index(index[i]);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kSigned) {
      const int32_t k = static_cast<int32_t>(index[i]), negative = std::bit_cast<int32_t>(x[i]) >> 31;
      const int32_t below = kZeroOfSignedMap - std::min(std::max(k, 1), 127), above = kZeroOfSignedMap + k;
      to[i] = static_cast<uint8_t>((below & negative) | (above & ~negative));
    } else {
      to[i] = static_cast<uint8_t>(index[i]);
    }
  }
}

// target_clones wants plain functions.
MORTISE_CLONES void update_8bit(const AdamWStep& step, const AdamW8BitArrays& a, const Maps& all, int64_t begin,
                                int64_t end) {
  Factors f(step);
  Block x;
  for (int64_t at = begin; at < end; at += kAdamW8BitBlock) {
    const int64_t n = std::min(kAdamW8BitBlock, end - at), block = at / kAdamW8BitBlock;
    read_block(a, at, n, x);
    look_up(all.with_sign.data(), a.m + at, n, x.m);
    look_up(all.without.data(), a.v + at, n, x.v);
    f.m_scale = a.m_scale[block];
    f.v_scale = a.v_scale[block];
    update<true>(f, x, n);
    write_block(a, at, n, x);
    quantise<true>(all.magnitude, x.m, a.m_scale[block] = largest(x.m, n), n, a.m + at);
    quantise<false>(all.whole, x.v, a.v_scale[block] = largest(x.v, n), n, a.v + at);
  }
}

MORTISE_CLONES void update_32bit(const AdamWStep& step, const AdamW8BitArrays& a, const std::array<float*, 2>& states,
                                 int64_t begin, int64_t end) {
  const Factors f(step);
  Block x;
  for (int64_t at = begin; at < end; at += kAdamW8BitBlock) {
    const int64_t n = std::min(kAdamW8BitBlock, end - at);
    read_block(a, at, n, x);
    x.m = states[0] + at;
    x.v = states[1] + at;
    update<false>(f, x, n);
    write_block(a, at, n, x);
  }
}

}  // namespace

const std::array<float, 256>& dynamic_map(bool is_signed) { return is_signed ? maps().with_sign : maps().without; }

void adamw_8bit_update(const AdamWStep& step, const AdamW8BitArrays& a, int64_t begin, int64_t end) {
  update_8bit(step, a, maps(), begin, end);
}

void adamw_32bit_update(const AdamWStep& step, const AdamW8BitArrays& a, const std::array<float*, 2>& states,
                        int64_t begin, int64_t end) {
  update_32bit(step, a, states, begin, end);
}

}  // namespace mortise::kernels
