// Elements of any type that weights may have, as floats and back: a stretch at a time, short enough for the cache, so
// that a kernel over many types has one arithmetic. Loops over fp32, fp64 and bf16 vectorise.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/bf16/bf16.h"
#include "mortise/dtype.h"

namespace mortise::kernels {

// Elements [at, at + n) of `from`, whose dtype is one that weights may have.
[[gnu::always_inline]] inline void read_floats(uint32_t dtype, const void* from, int64_t at, int64_t n,
                                               float* __restrict to) {
  const auto* f64 = static_cast<const double*>(from) + at;
  const auto* bf16 = static_cast<const BF16*>(from) + at;
  const auto* f16 = static_cast<const uint16_t*>(from) + at;
  switch (dtype) {
    case MORTISE_F32:
      std::memcpy(to, static_cast<const float*>(from) + at, static_cast<size_t>(n) * sizeof(float));
      break;
    case MORTISE_F64:
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(f64[i]);
      break;
    case MORTISE_BF16:
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(bf16[i]);
      break;
    default:
      for (int64_t i = 0; i < n; ++i) to[i] = mortise_f16_to_float(f16[i]);
  }
}

// The other way, rounded to the nearest, ties to even.
[[gnu::always_inline]] inline void write_floats(uint32_t dtype, void* to, int64_t at, int64_t n,
                                                const float* __restrict from) {
  auto* f64 = static_cast<double*>(to) + at;
  auto* bf16 = static_cast<BF16*>(to) + at;
  auto* f16 = static_cast<uint16_t*>(to) + at;
  switch (dtype) {
    case MORTISE_F32: std::memcpy(static_cast<float*>(to) + at, from, static_cast<size_t>(n) * sizeof(float)); break;
    case MORTISE_F64:
      for (int64_t i = 0; i < n; ++i) f64[i] = from[i];
      break;
    case MORTISE_BF16:
      for (int64_t i = 0; i < n; ++i) bf16[i] = BF16(from[i]);
      break;
    default:
      for (int64_t i = 0; i < n; ++i) f16[i] = mortise_f16_from_float(from[i]);
  }
}

}  // namespace mortise::kernels
