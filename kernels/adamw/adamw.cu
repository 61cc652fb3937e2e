// AdamW of all parameters in one launch.
//
// Floor   28 bytes a parameter in F32 with gradients in F32 (read p, g, m, v; write p, m, v), 30 with the copy in 16
//         bits.
// Plan    a block a piece of a tensor, four elements a thread at a time; a step's numbers once a block.
// Now     see docs/measurements.md.
#include "kernels/adamw/adamw_cuda.h"
#include "kernels/adamw/element.h"
#include "kernels/bf16/bf16.h"
#include "kernels/cuda/slices.h"

namespace mortise::kernels {
namespace {

struct Betas {
  double beta1, beta2, eps;
};

template <class T, class G, bool kNearM>
struct Update {
  const AdamWSlice& s;
  const AdamWNumbers<T>& numbers;

  __device__ void one(int64_t i) const { some<1>(i); }
  __device__ void four(int64_t i) const { some<4>(i); }
  template <int N>
  __device__ void some(int64_t i) const {
    const auto g = elements_at<N>(static_cast<const G*>(s.g), i);
    auto& p_there = elements_at<N>(static_cast<T*>(s.p), i);
    auto& m_there = elements_at<N>(static_cast<T*>(s.m), i);
    auto& v_there = elements_at<N>(static_cast<T*>(s.v), i);
    auto p = p_there, m = m_there, v = v_there;
    for (int k = 0; k < N; ++k) adamw_element<kNearM>(numbers, static_cast<T>(g.at[k]), p.at[k], m.at[k], v.at[k]);
    p_there = p;
    m_there = m;
    v_there = v;
    if (s.copy) write_copy(s.copy, s.copy_dtype, i, p);
  }
};

template <class T, class G, bool kNearM>
__device__ void update(const SliceTable<AdamWSlice>::Piece& piece, const AdamWNumbers<T>& numbers) {
  const AdamWSlice& s = piece.slice;
  const bool fours = are_fours(static_cast<T*>(s.p), static_cast<T*>(s.m), static_cast<T*>(s.v),
                               static_cast<const G*>(s.g), static_cast<uint16_t*>(s.copy));
  for_elements(piece.begin, piece.end, fours, Update<T, G, kNearM>{s, numbers});
}

template <class T, bool kNearM>
__global__ void __launch_bounds__(kSliceThreads)
    adamw(const __grid_constant__ SliceTable<AdamWSlice> table, DeviceLedger ledger, Betas betas) {
  if (*ledger.verdict == 0) return;
  const auto piece = table.piece(static_cast<int32_t>(blockIdx.x));
  const AdamWSlice& s = piece.slice;
  __shared__ AdamWNumbers<T> numbers;
  if (threadIdx.x == 0) {
    const auto t = static_cast<double>(*ledger.applied + 1);
    numbers = adamw_numbers<T>({ledger.lr[s.group], ledger.weight_decay[s.group], betas.beta1, betas.beta2, betas.eps,
                                1 - pow(betas.beta1, t), 1 - pow(betas.beta2, t), *ledger.multiplier});
  }
  __syncthreads();
  const AdamWNumbers<T> mine = numbers;
  if (s.grad == MORTISE_F32) update<T, float, kNearM>(piece, mine);
  else if (s.grad == MORTISE_BF16) update<T, BF16, kNearM>(piece, mine);
  else update<T, double, kNearM>(piece, mine);
}

}  // namespace

const char* adamw_cuda(const AdamWSlice* slices, int64_t n, uint32_t master, const DeviceLedger& ledger,
                       const std::array<double, 2>& betas, double eps, void* stream) {
  const bool near = adamw_is_near(betas[0]);
  const auto kernel = master == MORTISE_F64 ? (near ? adamw<double, true> : adamw<double, false>)
                                            : (near ? adamw<float, true> : adamw<float, false>);
  for_tables(slices, n, [&](const SliceTable<AdamWSlice>& table, int32_t blocks) {
    MORTISE_LAUNCH(kernel, blocks, kSliceThreads, stream, table, ledger, Betas{betas[0], betas[1], eps});
  });
  return launch_error();
}

}  // namespace mortise::kernels
