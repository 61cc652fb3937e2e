// AdamW with 8-bit means, of all parameters in one launch, and of those with fp32 means in another.
//
// Floor   16 bytes a parameter with weights and gradients in F32 (read p, g, m, v; write p, m, v), 18 with the copy
//         in 16 bits; 28 and 30 with fp32 means.
// Plan    a warp a block of 256 elements, eight a thread: its largest means need no shared memory and no barrier. Maps
//         and tables of the nearest index are made by each block of threads in its shared memory, 26 KB, where any
//         address is read as fast as any other; that costs a thread up to some hundred stores, so a block of threads
//         takes a long piece.
#include "kernels/adamw_8bit/adamw_8bit_cuda.h"
#include "kernels/adamw_8bit/element.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/slices.h"

namespace mortise::kernels {
namespace {

constexpr int64_t kLongPiece = 32768;  // a multiple of 256 a warp
constexpr int kEach = 8;               // elements of a thread
constexpr int kWarpElements = 32 * kEach;
static_assert(kWarpElements == kAdamW8BitBlock);

struct Betas {
  double beta1, beta2, eps;
};

struct Tables {
  float with_sign[256], without[256];
  Nearest magnitude, whole;
};

// By the 256 threads of a block, one index each.
__device__ void make(Tables& tables) {
  const int at = static_cast<int>(threadIdx.x), n = 256 - kZeroOfSignedMap;
  tables.without[at] = dynamic_value<false>(at);
  if (at < n) tables.with_sign[kZeroOfSignedMap + at] = dynamic_value<true>(at);
  if (at > 0 && at < n - 1) tables.with_sign[kZeroOfSignedMap - at] = -dynamic_value<true>(at);
  __syncthreads();
  tables.whole.fill(tables.without, 256, false, at);
  if (at < n) tables.magnitude.fill(&tables.with_sign[kZeroOfSignedMap], n, true, at);
  __syncthreads();
}

__device__ AdamW8BitNumbers numbers_of(const DeviceLedger& ledger, int32_t group, const Betas& betas) {
  const auto t = static_cast<double>(*ledger.applied + 1);
  return adamw_8bit_numbers({ledger.lr[group], ledger.weight_decay[group], betas.beta1, betas.beta2, betas.eps,
                             1 - pow(betas.beta1, t), 1 - pow(betas.beta2, t), *ledger.multiplier});
}

// A thread's elements of a piece.
struct Mine {
  const AdamW8BitSlice& s;
  int64_t at;
  int n;
  bool packed;
  float p[kEach], g[kEach];

  __device__ Mine(const AdamW8BitSlice& slice, bool packs, int64_t begin, int64_t end) : s(slice), at(begin) {
    const int64_t left = end - begin;
    n = static_cast<int>(left < 0 ? 0 : left < kEach ? left : kEach);
    packed = packs && n == kEach;
    read_floats(s.master, s.p, at, n, packed, p);
    read_floats(s.grad, s.g, at, n, packed, g);
  }
  __device__ void write_weights() const {
    write_floats(s.master, s.p, at, n, packed, p);
    if (s.copy) write_floats(s.copy_dtype, s.copy, at, n, packed, p);
  }
};

// body(at): where a thread's elements begin in each of the piece's blocks of 256. All threads of a warp take as many.
template <class Body>
__device__ void for_blocks(int64_t begin, int64_t end, const Body& body) {
  const int64_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t at = begin + warp * kWarpElements; at < end; at += kSliceThreads * kEach) body(at + lane * kEach);
}

// Of finite numbers: their bits without the sign are ordered as they are.
__device__ float largest_of_warp(const float (&x)[kEach]) {
  uint32_t bits = 0;
  for (int k = 0; k < kEach; ++k) {
    const uint32_t one = mortise_float_bits(x[k]) & 0x7FFFFFFFu;
    bits = one > bits ? one : bits;
  }
  return mortise_float_of_bits(__reduce_max_sync(~0u, bits));
}

template <bool kSigned>
__device__ void quantise(const Nearest& nearest, const float (&x)[kEach], float scale, uint8_t (&to)[kEach]) {
  const float factor = adamw_8bit_inverse(scale);
  for (int k = 0; k < kEach; ++k) {
    const uint32_t index = nearest.index(Nearest::position(std::fabs(x[k]) * factor));
    to[k] = kSigned ? adamw_8bit_signed(index, x[k]) : static_cast<uint8_t>(index);
  }
}

__device__ uintptr_t addresses(const AdamW8BitSlice& s) {
  return address(s.p) | address(s.m) | address(s.v) | address(s.g) | address(s.copy);
}

using LongTable = SliceTable<AdamW8BitSlice, kLongPiece>;
using Table = SliceTable<AdamW8BitSlice>;

__global__ void __launch_bounds__(kSliceThreads, 4)
    adamw_8bit(const __grid_constant__ LongTable table, DeviceLedger ledger, Betas betas) {
  if (*ledger.verdict == 0) return;
  const auto piece = table.piece(static_cast<int32_t>(blockIdx.x));
  const AdamW8BitSlice& s = piece.slice;
  __shared__ Tables tables;
  __shared__ AdamW8BitNumbers shared_numbers;
  if (threadIdx.x == kSliceThreads - 1) shared_numbers = numbers_of(ledger, s.group, betas);
  make(tables);
  const AdamW8BitNumbers numbers = shared_numbers;
  const bool packs = are_packs(addresses(s));
  for_blocks(piece.begin, piece.end, [&](int64_t at) {
    Mine x(s, packs, at, piece.end);
    uint8_t *const m_there = static_cast<uint8_t*>(s.m) + at, *const v_there = static_cast<uint8_t*>(s.v) + at;
    uint8_t m_index[kEach], v_index[kEach];
    read(m_there, x.n, x.packed, m_index);
    read(v_there, x.n, x.packed, v_index);
    const int64_t block = at / kAdamW8BitBlock;
    const float m_scale = s.m_scale[block], v_scale = s.v_scale[block];
    float m[kEach], v[kEach];
    for (int k = 0; k < kEach; ++k) {
      m[k] = tables.with_sign[m_index[k]];
      v[k] = tables.without[v_index[k]];
      adamw_8bit_element<true>(numbers, m_scale, v_scale, x.g[k], x.p[k], m[k], v[k]);
      if (k >= x.n) m[k] = v[k] = 0;  // behind the end
    }
    x.write_weights();
    const float m_largest = largest_of_warp(m), v_largest = largest_of_warp(v);
    quantise<true>(tables.magnitude, m, m_largest, m_index);
    quantise<false>(tables.whole, v, v_largest, v_index);
    write(m_there, x.n, x.packed, m_index);
    write(v_there, x.n, x.packed, v_index);
    if (threadIdx.x % 32 == 0) {  // all of the warp have read them before the largest was found
      s.m_scale[block] = m_largest;
      s.v_scale[block] = v_largest;
    }
  });
}

__global__ void __launch_bounds__(kSliceThreads)
    adamw_32bit(const __grid_constant__ Table table, DeviceLedger ledger, Betas betas) {
  if (*ledger.verdict == 0) return;
  const auto piece = table.piece(static_cast<int32_t>(blockIdx.x));
  const AdamW8BitSlice& s = piece.slice;
  __shared__ AdamW8BitNumbers shared_numbers;
  if (threadIdx.x == 0) shared_numbers = numbers_of(ledger, s.group, betas);
  __syncthreads();
  const AdamW8BitNumbers numbers = shared_numbers;
  const bool packs = are_packs(addresses(s));
  for_blocks(piece.begin, piece.end, [&](int64_t at) {
    Mine x(s, packs, at, piece.end);
    float *const m_there = static_cast<float*>(s.m) + at, *const v_there = static_cast<float*>(s.v) + at;
    float m[kEach], v[kEach];
    read(m_there, x.n, x.packed, m);
    read(v_there, x.n, x.packed, v);
    for (int k = 0; k < kEach; ++k) adamw_8bit_element<false>(numbers, 1, 1, x.g[k], x.p[k], m[k], v[k]);
    x.write_weights();
    write(m_there, x.n, x.packed, m);
    write(v_there, x.n, x.packed, v);
  });
}

}  // namespace

const char* adamw_8bit_cuda(const AdamW8BitSlice* slices, int64_t n, const DeviceLedger& ledger,
                            const std::array<double, 2>& betas, double eps, void* stream) {
  for_tables<kLongPiece>(slices, n, [&](const LongTable& table, int32_t blocks) {
    MORTISE_LAUNCH(adamw_8bit, blocks, kSliceThreads, stream, table, ledger, Betas{betas[0], betas[1], eps});
  });
  return launch_error();
}

const char* adamw_32bit_cuda(const AdamW8BitSlice* slices, int64_t n, const DeviceLedger& ledger,
                             const std::array<double, 2>& betas, double eps, void* stream) {
  for_tables(slices, n, [&](const Table& table, int32_t blocks) {
    MORTISE_LAUNCH(adamw_32bit, blocks, kSliceThreads, stream, table, ledger, Betas{betas[0], betas[1], eps});
  });
  return launch_error();
}

}  // namespace mortise::kernels
