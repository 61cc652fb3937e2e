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
#include <cmath>

#include "kernels/adamw_8bit/element.h"
#include "kernels/clones.h"
#include "kernels/floats/floats.h"

namespace mortise::kernels {
namespace {

std::array<float, 256> make_map(bool is_signed) {
  std::array<float, 256> map{};
  if (is_signed) {
    for (int k = 1; k < 128; ++k) map[static_cast<size_t>(kZeroOfSignedMap - k)] = -dynamic_value<true>(k);
    for (int k = 0; k <= 128; ++k) map[static_cast<size_t>(kZeroOfSignedMap + k)] = dynamic_value<true>(k);
  } else {
    for (int k = 0; k < 256; ++k) map[static_cast<size_t>(k)] = dynamic_value<false>(k);
  }
  return map;
}

Nearest make_nearest(const float* ascending, int n, bool odd) {
  Nearest nearest;
  for (int at = 0; at < n; ++at) nearest.fill(ascending, n, odd, at);
  return nearest;
}

struct Maps {
  std::array<float, 256> with_sign = make_map(true), without = make_map(false);
  Nearest magnitude = make_nearest(&with_sign[kZeroOfSignedMap], 256 - kZeroOfSignedMap, true);
  Nearest whole = make_nearest(without.data(), 256, false);
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

template <bool kClears>
[[gnu::always_inline]] inline void update(const AdamW8BitNumbers& numbers, float m_scale, float v_scale, Block& x,
                                          int64_t n) {
  const AdamW8BitNumbers f = numbers;  // which no store changes
  const float* __restrict grad = x.g;
  float* __restrict p = x.p, * __restrict m = x.m, * __restrict v = x.v;
  for (int64_t i = 0; i < n; ++i) adamw_8bit_element<kClears>(f, m_scale, v_scale, grad[i], p[i], m[i], v[i]);
}

// Of finite numbers: their bits without the sign are ordered as they are.
[[gnu::always_inline]] inline float largest(const float* x, int64_t n) {
  int32_t bits = 0;
  for (int64_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(bits);
}

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
  const float factor = adamw_8bit_inverse(scale);
  uint32_t index[kAdamW8BitBlock];
  for (int64_t i = 0; i < n; ++i) index[i] = Nearest::position(std::fabs(x[i]) * factor);
  for (int64_t i = 0; i < n; ++i) index[i] = nearest.index(index[i]);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kSigned) to[i] = adamw_8bit_signed(index[i], x[i]);
    else to[i] = static_cast<uint8_t>(index[i]);
  }
}

// target_clones wants plain functions.
MORTISE_CLONES void update_8bit(const AdamWStep& step, const AdamW8BitArrays& a, const Maps& all, int64_t begin,
                                int64_t end) {
  const AdamW8BitNumbers numbers = adamw_8bit_numbers(step);
  Block x;
  for (int64_t at = begin; at < end; at += kAdamW8BitBlock) {
    const int64_t n = std::min(kAdamW8BitBlock, end - at), block = at / kAdamW8BitBlock;
    read_block(a, at, n, x);
    look_up(all.with_sign.data(), a.m + at, n, x.m);
    look_up(all.without.data(), a.v + at, n, x.v);
    update<true>(numbers, a.m_scale[block], a.v_scale[block], x, n);
    write_block(a, at, n, x);
    quantise<true>(all.magnitude, x.m, a.m_scale[block] = largest(x.m, n), n, a.m + at);
    quantise<false>(all.whole, x.v, a.v_scale[block] = largest(x.v, n), n, a.v + at);
  }
}

MORTISE_CLONES void update_32bit(const AdamWStep& step, const AdamW8BitArrays& a, const std::array<float*, 2>& states,
                                 int64_t begin, int64_t end) {
  const AdamW8BitNumbers numbers = adamw_8bit_numbers(step);
  Block x;
  for (int64_t at = begin; at < end; at += kAdamW8BitBlock) {
    const int64_t n = std::min(kAdamW8BitBlock, end - at);
    read_block(a, at, n, x);
    x.m = states[0] + at;
    x.v = states[1] + at;
    update<false>(numbers, 1, 1, x, n);
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
