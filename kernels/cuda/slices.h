// One launch over many tensors: where they lie stands in a table that is a parameter of the kernel, so that nothing is
// copied to the device and a recorded launch can be played again. A block takes a piece of one tensor.
#pragma once
#include <cstdint>

#include "mortise/cuda/launch.hpp"
#include "mortise/half.h"

namespace mortise::kernels {

constexpr int kSliceThreads = 256;
constexpr int64_t kSlicePiece = 8192;  // elements of a block; a multiple of 4 a thread

// `kPiece` elements a block, where blocks are counted by elements.
template <class Slice, int64_t kPiece = kSlicePiece>
struct SliceTable {
  // A parameter has at most 32,764 bytes from CUDA 12.1 on; another 700 are for the others.
  static constexpr int kMost = (32764 - 704) / static_cast<int>(sizeof(Slice) + sizeof(int32_t));
  Slice slices[kMost];
  int32_t first[kMost + 1];  // the first block of each, and of none
  int32_t n;

  struct Place {
    int32_t slice, block;  // which slice, and which of its blocks
  };
  __device__ Place place(int32_t block) const {
    int32_t low = 0, high = n;
    while (high - low > 1) {
      const int32_t middle = (low + high) / 2;
      (block >= first[middle] ? low : high) = middle;
    }
    return {low, block - first[low]};
  }

  struct Piece {
    Slice slice;
    int64_t begin, end;  // elements
  };
  __device__ Piece piece(int32_t block) const {
    const Place at = place(block);
    const int64_t begin = at.block * kPiece, length = slices[at.slice].length;
    return {slices[at.slice], begin, begin + kPiece < length ? begin + kPiece : length};
  }
};

// launch(table, blocks) for all slices, in as few tables as hold them; blocks_of(slice) is how many blocks it gets.
template <int64_t kPiece = kSlicePiece, class Slice, class Blocks, class Launch>
void for_tables(const Slice* slices, int64_t n, const Blocks& blocks_of, const Launch& launch) {
  SliceTable<Slice, kPiece> table;
  for (int64_t at = 0; at < n;) {
    table.n = 0;
    table.first[0] = 0;
    for (; at < n && table.n < table.kMost; ++at) {
      const auto blocks = static_cast<int32_t>(blocks_of(slices[at]));
      if (blocks == 0) continue;
      table.slices[table.n] = slices[at];
      table.first[table.n + 1] = table.first[table.n] + blocks;
      ++table.n;
    }
    if (table.n > 0) launch(table, table.first[table.n]);
  }
}

// The same, a block for each `kPiece` elements; `Slice` has a member `length`, in elements.
template <int64_t kPiece = kSlicePiece, class Slice, class Launch>
void for_tables(const Slice* slices, int64_t n, const Launch& launch) {
  for_tables<kPiece>(slices, n, [](const Slice& s) { return (s.length + kPiece - 1) / kPiece; }, launch);
}

// N elements, as one access of memory.
template <class T, int N>
struct alignas(N * sizeof(T)) Elements {
  T at[N];
};
template <class T>
using Four = Elements<T, 4>;

template <int N, class T>
__device__ Elements<T, N>& elements_at(T* array, int64_t i) {
  return *reinterpret_cast<Elements<T, N>*>(array + i);
}
template <int N, class T>
__device__ const Elements<T, N>& elements_at(const T* array, int64_t i) {
  return *reinterpret_cast<const Elements<T, N>*>(array + i);
}
// Does each of the arrays begin where Four may? One that is null does.
template <class... T>
__device__ bool are_fours(const T*... arrays) {
  return (... && (reinterpret_cast<uintptr_t>(arrays) % sizeof(Four<T>) == 0));
}

// The compute copy of elements i to i + N - 1: `dtype` is MORTISE_BF16 or _F16.
template <int N, class T>
__device__ void write_copy(void* copy, uint32_t dtype, int64_t i, const Elements<T, N>& from) {
  Elements<uint16_t, N> bits;
  for (int k = 0; k < N; ++k) {
    const auto x = static_cast<float>(from.at[k]);
    bits.at[k] = dtype == MORTISE_BF16 ? mortise_bf16_from_float(x) : mortise_f16_from_float(x);
  }
  elements_at<N>(static_cast<uint16_t*>(copy), i) = bits;
}

// body.four(i) or body.one(i) for the elements of a piece, a thread each; fours where `fours`: are_fours of all arrays.
template <class Body>
__device__ void for_elements(int64_t begin, int64_t end, bool fours, const Body& body) {
  const int64_t whole = fours ? end - (end - begin) % 4 : begin;
  for (int64_t i = begin + 4 * threadIdx.x; i < whole; i += 4 * kSliceThreads) body.four(i);
  for (int64_t i = whole + threadIdx.x; i < end; i += kSliceThreads) body.one(i);
}

}  // namespace mortise::kernels
