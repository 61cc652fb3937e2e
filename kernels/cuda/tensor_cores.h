// What tensor cores of sm_80 and later do for a warp, one name an instruction of PTX; on a machine without a device the
// same by hand, so that a test there sees which number a lane holds.
//
// Lane   4·g + t; of a tile it holds
//   a, 16 by 16   rows g, g+8, g, g+8 in its four registers; columns 2t and 2t+1, in the last two 8 further
//   b, 16 by 8    column g; rows 2t and 2t+1, in the second register 8 further
//   c, 16 by 8    rows g, g, g+8, g+8; columns 2t, 2t+1, 2t, 2t+1
// Source  PTX ISA: mma.m16n8k16, ldmatrix, cp.async, ex2.approx
#pragma once
#include <cstring>

#include "kernels/cuda/floats.h"

namespace mortise::kernels {

// Sixteen bytes of a tile in shared memory.
struct alignas(16) Chunk {
  uint16_t at[8];
};

#ifdef __CUDACC__

// Two numbers as T, the first in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pair<BF16>(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
template <>
__device__ __forceinline__ uint32_t pair<F16>(float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// c += a · b
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, BF16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four tiles of 8 by 8: the lanes 8i … 8i+7 name the rows of tile i. Of each a lane gets columns 2t and 2t+1 of row g.
__device__ __forceinline__ void read_tiles(uint32_t (&to)[4], const Chunk* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
// The same of each tile turned: rows 2t and 2t+1 of column g.
__device__ __forceinline__ void read_tiles_turned(uint32_t (&to)[4], const Chunk* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Into shared memory, behind this thread's back; zeros if it is not `there`.
__device__ __forceinline__ void begin_copy(Chunk* to, const void* from, bool there) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(there ? 16 : 0)
      : "memory");
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last `kLeft` groups have come.
template <int kLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// 2 to the power of x.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#else

template <class T>
uint32_t pair(float low, float high) {
  return T(low).bits | static_cast<uint32_t>(T(high).bits) << 16;
}

template <class T>
float half_of(uint32_t both, unsigned which) {
  T x;
  x.bits = static_cast<uint16_t>(both >> 16 * which);
  return static_cast<float>(x);
}

struct Operands {
  uint32_t a[4], b[2];
};

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  using namespace mortise::emulated;
  const Warp<Operands> warp({{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const unsigned lane = block.current % Block::kWarp;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const float left = half_of<T>(warp[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
      c[i] += left * half_of<T>(warp[column * 4 + k % 8 / 2].b[k / 8], k % 2);
    }
  }
}
inline void read_tiles(uint32_t (&to)[4], const Chunk* row) {
  using namespace mortise::emulated;
  const Warp<const Chunk*> rows(row);
  const unsigned lane = block.current % Block::kWarp;
  for (unsigned i = 0; i < 4; ++i) std::memcpy(&to[i], &rows[8 * i + lane / 4]->at[lane % 4 * 2], sizeof to[i]);
}
inline void read_tiles_turned(uint32_t (&to)[4], const Chunk* row) {
  using namespace mortise::emulated;
  const Warp<const Chunk*> rows(row);
  const unsigned lane = block.current % Block::kWarp;
  const auto number = [&](unsigned i, unsigned which) { return rows[8 * i + lane % 4 * 2 + which]->at[lane / 4]; };
  for (unsigned i = 0; i < 4; ++i) to[i] = number(i, 0) | static_cast<uint32_t>(number(i, 1)) << 16;
}
inline void begin_copy(Chunk* to, const void* from, bool there) {
  there ? static_cast<void>(std::memcpy(to, from, sizeof *to)) : static_cast<void>(std::memset(to, 0, sizeof *to));
}
inline void end_of_copies() {}
template <int kLeft>
void wait_for_copies() {}
inline float power_of_two(float x) { return std::exp2(x); }

#endif

}  // namespace mortise::kernels
