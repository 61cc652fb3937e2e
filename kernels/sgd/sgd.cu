// SGD of all parameters in one launch.
//
// Floor   12 bytes a parameter in F32 with gradients in F32 (read p, g; write p), 20 with momentum; 2 more with the
//         copy in 16 bits.
// Plan    a block a piece of a tensor, four elements a thread at a time.
#include "kernels/bf16/bf16.h"
#include "kernels/cuda/slices.h"
#include "kernels/sgd/element.h"
#include "kernels/sgd/sgd_cuda.h"

namespace mortise::kernels {
namespace {

template <class T, class G, bool kMomentum, bool kNesterov>
struct Update {
  const SGDSlice& s;
  const SGDNumbers<T>& numbers;

  __device__ void one(int64_t i) const { some<1>(i); }
  __device__ void four(int64_t i) const { some<4>(i); }
  template <int N>
  __device__ void some(int64_t i) const {
    const auto g = elements_at<N>(static_cast<const G*>(s.g), i);
    auto& p_there = elements_at<N>(static_cast<T*>(s.p), i);
    auto p = p_there;
    if constexpr (kMomentum) {
      auto& b_there = elements_at<N>(static_cast<T*>(s.b), i);
      auto b = b_there;
      for (int k = 0; k < N; ++k) sgd_element<kNesterov>(numbers, static_cast<T>(g.at[k]), p.at[k], b.at[k]);
      b_there = b;
    } else {
      for (int k = 0; k < N; ++k) sgd_element(numbers, static_cast<T>(g.at[k]), p.at[k]);
    }
    p_there = p;
    if (s.copy) write_copy(s.copy, s.copy_dtype, i, p);
  }
};

template <class T, class G, bool kMomentum, bool kNesterov>
__device__ void update(const SliceTable<SGDSlice>::Piece& piece, const SGDNumbers<T>& numbers) {
  const SGDSlice& s = piece.slice;
  const bool fours = are_fours(static_cast<T*>(s.p), static_cast<T*>(kMomentum ? s.b : nullptr),
                               static_cast<const G*>(s.g), static_cast<uint16_t*>(s.copy));
  for_elements(piece.begin, piece.end, fours, Update<T, G, kMomentum, kNesterov>{s, numbers});
}

template <class T, bool kMomentum, bool kNesterov>
__global__ void __launch_bounds__(kSliceThreads)
    sgd(const __grid_constant__ SliceTable<SGDSlice> table, DeviceLedger ledger, double momentum) {
  if (*ledger.verdict == 0) return;
  const auto piece = table.piece(static_cast<int32_t>(blockIdx.x));
  const SGDSlice& s = piece.slice;
  const SGDNumbers<T> numbers =
      sgd_numbers<T>({ledger.lr[s.group], ledger.weight_decay[s.group], momentum, *ledger.multiplier, kNesterov});
  if (s.grad == MORTISE_F32) update<T, float, kMomentum, kNesterov>(piece, numbers);
  else if (s.grad == MORTISE_BF16) update<T, BF16, kMomentum, kNesterov>(piece, numbers);
  else update<T, double, kMomentum, kNesterov>(piece, numbers);
}

template <class T>
auto kernel_for(double momentum, bool nesterov) {
  if (momentum == 0) return sgd<T, false, false>;
  return nesterov ? sgd<T, true, true> : sgd<T, true, false>;
}

}  // namespace

const char* sgd_cuda(const SGDSlice* slices, int64_t n, uint32_t master, const DeviceLedger& ledger, double momentum,
                     bool nesterov, void* stream) {
  const auto kernel =
      master == MORTISE_F64 ? kernel_for<double>(momentum, nesterov) : kernel_for<float>(momentum, nesterov);
  for_tables(slices, n, [&](const SliceTable<SGDSlice>& table, int32_t blocks) {
    MORTISE_LAUNCH(kernel, blocks, kSliceThreads, stream, table, ledger, momentum);
  });
  return launch_error();
}

}  // namespace mortise::kernels
