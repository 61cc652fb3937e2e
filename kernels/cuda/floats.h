// A thread's elements of any type that weights may have, as floats and back: the device's kernels/floats/floats.h.
#pragma once
#include <cstdint>

#include "kernels/bf16/bf16.h"
#include "kernels/f16/f16.h"
#include "mortise/cuda/launch.hpp"

namespace mortise::kernels {

// N elements that lie together, as accesses of 16 bytes or as the one that they are.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};

// Do arrays whose addresses are joined by | begin where a Pack may?
__device__ inline bool are_packs(uintptr_t addresses) { return addresses % 16 == 0; }
inline __device__ uintptr_t address(const void* array) { return reinterpret_cast<uintptr_t>(array); }

// Elements [0, n) of `from`; `n` is N at most. `packed`: it is N, and they are a Pack. Others become T().
template <int N, class T>
__device__ void read(const T* from, int n, bool packed, T (&to)[N]) {
  if (packed) {
    const Pack<T, N> all = *reinterpret_cast<const Pack<T, N>*>(from);
    for (int k = 0; k < N; ++k) to[k] = all.at[k];
  } else {
    for (int k = 0; k < N; ++k) to[k] = k < n ? from[k] : T();
  }
}
template <int N, class T>
__device__ void write(T* to, int n, bool packed, const T (&from)[N]) {
  if (packed) {
    Pack<T, N> all;
    for (int k = 0; k < N; ++k) all.at[k] = from[k];
    *reinterpret_cast<Pack<T, N>*>(to) = all;
  } else {
    for (int k = 0; k < N; ++k)
      if (k < n) to[k] = from[k];
  }
}

template <class T, int N>
__device__ void read_as(const void* from, int64_t at, int n, bool packed, float (&to)[N]) {
  T here[N];
  read<N>(static_cast<const T*>(from) + at, n, packed, here);
  for (int k = 0; k < N; ++k) to[k] = static_cast<float>(here[k]);
}
template <class T, int N>
__device__ void write_as(void* to, int64_t at, int n, bool packed, const float (&from)[N]) {
  T here[N];
  for (int k = 0; k < N; ++k) here[k] = static_cast<T>(from[k]);
  write<N>(static_cast<T*>(to) + at, n, packed, here);
}

// Elements [at, at + n) of an array of a type that weights may have.
template <int N>
__device__ void read_floats(uint32_t dtype, const void* from, int64_t at, int n, bool packed, float (&to)[N]) {
  switch (dtype) {
    case MORTISE_F32: return read_as<float>(from, at, n, packed, to);
    case MORTISE_F64: return read_as<double>(from, at, n, packed, to);
    case MORTISE_BF16: return read_as<BF16>(from, at, n, packed, to);
    default: return read_as<F16>(from, at, n, packed, to);
  }
}
// The other way, rounded to the nearest, ties to even. No weight that a kernel writes so is in fp64.
template <int N>
__device__ void write_floats(uint32_t dtype, void* to, int64_t at, int n, bool packed, const float (&from)[N]) {
  switch (dtype) {
    case MORTISE_F32: return write_as<float>(to, at, n, packed, from);
    case MORTISE_BF16: return write_as<BF16>(to, at, n, packed, from);
    default: return write_as<F16>(to, at, n, packed, from);
  }
}

}  // namespace mortise::kernels
