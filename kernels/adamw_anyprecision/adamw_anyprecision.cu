// AdamW in any precision, of all parameters in one launch.
//
// Floor   with p, g, m in fp32 and v in bf16: 24 bytes a parameter (read p, g, m, v; write p, m, v); all in bf16: 14,
//         with Kahan summation 18; 2 more with the copy in 16 bits.
// Plan    a block a piece of a tensor, four elements a thread at a time; a parameter's numbers once a block. One kernel
//         for all mixtures of dtypes: which of them an array has, all threads of a block find alike.
#include "kernels/adamw_anyprecision/adamw_anyprecision_cuda.h"
#include "kernels/adamw_anyprecision/element.h"
#include "kernels/bf16/bf16.h"
#include "kernels/cuda/slices.h"

namespace mortise::kernels {
namespace {

struct Betas {
  double beta1, beta2, eps;
};

struct F16 {
  uint16_t bits;
  __device__ explicit operator float() const { return mortise_f16_to_float(bits); }
};

// Elements of fp32 or bf16 as they lie in memory: only when reads of all arrays are under way is one waited for.
template <int N>
struct Read {
  __device__ Read(const void* from, uint32_t dtype, int64_t i) : is_half(dtype == MORTISE_BF16) {
    if (is_half) half = elements_at<N>(static_cast<const uint16_t*>(from), i);
    else whole = elements_at<N>(static_cast<const float*>(from), i);
  }
  __device__ Elements<float, N> floats() const {
    Elements<float, N> x;
    for (int k = 0; k < N; ++k) x.at[k] = is_half ? mortise_bf16_to_float(half.at[k]) : whole.at[k];
    return x;
  }
  bool is_half;
  Elements<float, N> whole{};
  Elements<uint16_t, N> half{};
};

template <int N>
__device__ void write(void* to, uint32_t dtype, int64_t i, const Elements<float, N>& x) {
  if (dtype == MORTISE_BF16) write_copy(to, dtype, i, x);
  else elements_at<N>(static_cast<float*>(to), i) = x;
}

__device__ bool is_four(const void* array, uint32_t dtype) {
  return dtype == MORTISE_BF16 ? are_fours(static_cast<const uint16_t*>(array))
                               : are_fours(static_cast<const float*>(array));
}

template <class G, bool kKahan>
struct Update {
  const AnyPrecisionSlice& s;
  const AnyPrecisionKept& kept;
  const AnyPrecisionNumbers& numbers;

  __device__ void one(int64_t i) const { some<1>(i); }
  __device__ void four(int64_t i) const { some<4>(i); }
  template <int N>
  __device__ void some(int64_t i) const {
    const auto g = elements_at<N>(static_cast<const G*>(s.g), i);
    const Read<N> p_there(s.p, kept.p, i), m_there(s.m, kept.m, i), v_there(s.v, kept.v, i);
    Elements<float, N> c{};
    if constexpr (kKahan) c = Read<N>(s.compensation, kept.compensation, i).floats();
    auto p = p_there.floats(), m = m_there.floats(), v = v_there.floats();
    for (int k = 0; k < N; ++k)
      anyprecision_element<kKahan>(numbers, static_cast<float>(g.at[k]), p.at[k], m.at[k], v.at[k], c.at[k]);
    write(s.p, kept.p, i, p);
    write(s.m, kept.m, i, m);
    write(s.v, kept.v, i, v);
    if constexpr (kKahan) write(s.compensation, kept.compensation, i, c);
    if (s.copy) write_copy(s.copy, s.copy_dtype, i, p);
  }
};

template <class G, bool kKahan>
__device__ void update(const SliceTable<AnyPrecisionSlice>::Piece& piece, const AnyPrecisionKept& kept,
                       const AnyPrecisionNumbers& numbers) {
  const AnyPrecisionSlice& s = piece.slice;
  const bool fours = is_four(s.p, kept.p) && is_four(s.m, kept.m) && is_four(s.v, kept.v) &&
                     (!kKahan || is_four(s.compensation, kept.compensation)) &&
                     are_fours(static_cast<const G*>(s.g), static_cast<uint16_t*>(s.copy));
  for_elements(piece.begin, piece.end, fours, Update<G, kKahan>{s, kept, numbers});
}

template <bool kKahan>
__global__ void __launch_bounds__(kSliceThreads, kKahan ? 4 : 5)
    anyprecision(const __grid_constant__ SliceTable<AnyPrecisionSlice> table, const AnyPrecisionKept kept,
                 DeviceLedger ledger, Betas betas) {
  if (*ledger.verdict == 0) return;
  const auto piece = table.piece(static_cast<int32_t>(blockIdx.x));
  const AnyPrecisionSlice& s = piece.slice;
  __shared__ AnyPrecisionNumbers numbers;
  if (threadIdx.x == 0) {
    const auto t = static_cast<double>(*ledger.applied + 1);
    numbers = anyprecision_numbers({ledger.lr[s.group], ledger.weight_decay[s.group], betas.beta1, betas.beta2,
                                    betas.eps, 1 - pow(betas.beta1, t), 1 - pow(betas.beta2, t), *ledger.multiplier},
                                   {kept.p, kept.m, kept.v, kept.compensation, s.grad});
  }
  __syncthreads();
  const AnyPrecisionNumbers mine = numbers;
  if (s.grad == MORTISE_F32) update<float, kKahan>(piece, kept, mine);
  else if (s.grad == MORTISE_BF16) update<BF16, kKahan>(piece, kept, mine);
  else if (s.grad == MORTISE_F16) update<F16, kKahan>(piece, kept, mine);
  else update<double, kKahan>(piece, kept, mine);
}

}  // namespace

const char* anyprecision_cuda(const AnyPrecisionSlice* slices, int64_t n, const AnyPrecisionKept& kept,
                              const DeviceLedger& ledger, const std::array<double, 2>& betas, double eps,
                              void* stream) {
  const auto kernel = kept.compensation == MORTISE_NO_DTYPE ? anyprecision<false> : anyprecision<true>;
  for_tables(slices, n, [&](const SliceTable<AnyPrecisionSlice>& table, int32_t blocks) {
    MORTISE_LAUNCH(kernel, blocks, kSliceThreads, stream, table, kept, ledger, Betas{betas[0], betas[1], eps});
  });
  return launch_error();
}

}  // namespace mortise::kernels
