/* bfloat16 and float16 as their 16 bits, for kernels of CUDA too. Rounds to the nearest, ties to even; what is beyond
 * the largest number becomes infinity; a NaN stays a NaN. What comes from a float is computed with integers only, so
 * that neither the rounding mode nor flushed denormals change a bit.
 *
 * Since 0.1 */
#ifndef MORTISE_HALF_H
#define MORTISE_HALF_H
#include <string.h>

#include "abi.h"
MORTISE_BEGIN

MORTISE_INLINE uint32_t mortise_float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
MORTISE_INLINE float mortise_float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* ---- bfloat16: the upper half of a float. Loops over these two vectorise. ---- */

MORTISE_INLINE float mortise_bf16_to_float(uint16_t h) { return mortise_float_of_bits((uint32_t)h << 16); }
MORTISE_INLINE uint16_t mortise_bf16_from_float(float x) {
  const uint32_t bits = mortise_float_bits(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return (uint16_t)(x != x ? 0x7FC0u : rounded);
}

/* ---- float16: 1 sign, 5 bits of exponent, 10 of mantissa ---- */

MORTISE_INLINE float mortise_f16_to_float(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3FFu;
  if (exponent == 31) return mortise_float_of_bits(sign | 0x7F800000u | (mantissa ? 0x400000u : 0) | mantissa << 13);
  if (exponent != 0) return mortise_float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = (float)mantissa * 0x1p-24f;
  return sign ? -small : small;
}
MORTISE_INLINE uint16_t mortise_f16_from_float(float x) {
  const uint32_t bits = mortise_float_bits(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
  if (size >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65,520 and more */
  if (size >= 0x38800000u) {                                  /* normal: 2^-14 and more */
    const uint32_t number = size - 0x38000000u;
    return (uint16_t)(sign | ((number + 0xFFFu + ((number >> 13) & 1u)) >> 13));
  }
  if (size < 0x33000000u) return (uint16_t)sign; /* below half of the smallest, 2^-25 */
  const uint32_t shift = 126 - (size >> 23), mantissa = (size & 0x7FFFFFu) | 0x800000u; /* in units of 2^-24 */
  const uint32_t half = 1u << (shift - 1), rest = mantissa & ((half << 1) - 1), floor = mantissa >> shift;
  return (uint16_t)(sign | (floor + (rest > half || (rest == half && (floor & 1u)))));
}

/* ---- from a double, rounded once ---- */

/* The float beside `x` whose last bit is set, unless x is a float: rounding it again, to fewer bits, cannot go wrong.
 */
MORTISE_INLINE float mortise_float_to_odd(double x) {
  const float near = (float)x;
  const uint32_t bits = mortise_float_bits(near);
  if ((double)near == x || x != x || (bits & 1u)) return near;
  const double size = x < 0 ? -x : x, near_size = near < 0 ? -(double)near : (double)near;
  return mortise_float_of_bits(near_size < size ? bits + 1 : bits - 1);
}
MORTISE_INLINE uint16_t mortise_bf16_from_double(double x) { return mortise_bf16_from_float(mortise_float_to_odd(x)); }
MORTISE_INLINE uint16_t mortise_f16_from_double(double x) { return mortise_f16_from_float(mortise_float_to_odd(x)); }

MORTISE_END
#endif
