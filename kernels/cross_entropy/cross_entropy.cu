// The cross-entropy of rows of logits: their losses in one launch, their gradient in another.
//
// Floor   2 bytes a logit in BF16 for the losses (read it) and 4 for the gradient (read it, write it); twice that in
//         F32. GPT-2 at 16 x 1,024 tokens and 50,304 columns: 1.65 GB and 3.30 GB.
// Plan    a block a row, eight neighbouring logits a thread at a time, of which kAhead are under way at once: in place,
//         no load may pass a store that the compiler sees. One e^x a logit, by the device's own instruction.
#include "kernels/cross_entropy/cross_entropy_cuda.h"
#include "kernels/cross_entropy/element.h"
#include "kernels/cuda/floats.h"

namespace mortise::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kEach = kLanes / kThreads, kAhead = 4;

// How many of a thread's logits from column `at` on are before `end`.
__device__ inline int count(int64_t at, int64_t end) {
  return end - at >= kEach ? kEach : end > at ? static_cast<int>(end - at) : 0;
}

// body(first column, n, T[kEach]) for the thread's logits in columns [begin, end), in their order.
template <class T, class Body>
__device__ void for_logits(const T* x, int64_t begin, int64_t end, const Body& body) {
  const bool packed = are_packs(address(x + begin));
  for (int64_t first = begin + kEach * static_cast<int64_t>(threadIdx.x); first < end; first += kAhead * kLanes) {
    T here[kAhead][kEach];
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = first + a * kLanes;
      const int n = count(at, end);
      read<kEach>(x + at, n, packed && n == kEach, here[a]);
    }
    for (int a = 0; a < kAhead; ++a) body(first + a * kLanes, count(first + a * kLanes, end), here[a]);
  }
}

// Of all threads, neighbours pair by pair, as the host's processor adds them; every thread gets it.
template <class W, class Join>
__device__ W of_block(W mine, const Join& join) {
  __shared__ W warps[kWarps];
  for (int mask = 1; mask < 32; mask *= 2) mine = join(mine, __shfl_xor_sync(~0u, mine, mask));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  W all[kWarps];
  for (int w = 0; w < kWarps; ++w) all[w] = warps[w];
  __syncthreads();
  for (int n = kWarps; n > 1; n /= 2)
    for (int i = 0; i < n / 2; ++i) all[i] = join(all[2 * i], all[2 * i + 1]);
  return all[0];
}
template <class W>
__device__ W sum_of_lanes(W (&lanes)[kEach]) {
  for (int n = kEach; n > 1; n /= 2)
    for (int i = 0; i < n / 2; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  return of_block(lanes[0], [](W a, W b) { return a + b; });
}

template <class T, bool kPlain>
__device__ RowSums<Wide<T>> row_sums(const T* x, int64_t n, Wide<T> reference) {
  using W = Wide<T>;
  W exps[kEach] = {}, plain[kEach] = {};
  for_logits(x, 0, n, [&](int64_t, int some, const T(&here)[kEach]) {
    for (int k = 0; k < kEach; ++k) {
      if (k >= some) continue;
      const W d = static_cast<W>(here[k]) - reference;
      exps[k] += exp_of(d);
      if (kPlain) plain[k] += d;
    }
  });
  return {sum_of_lanes(exps), kPlain ? sum_of_lanes(plain) : W(0)};
}

template <class T>
__device__ Wide<T> largest(const T* x, int64_t n) {
  using W = Wide<T>;
  const auto larger = [](W a, W b) { return a > b ? a : b; };
  W most = -kInfinity<W>;
  for_logits(x, 0, n, [&](int64_t, int some, const T(&here)[kEach]) {
    for (int k = 0; k < kEach; ++k)
      if (k < some) most = larger(static_cast<W>(here[k]), most);
  });
  return of_block(most, larger);
}

template <class T, bool kPlain>
__global__ void __launch_bounds__(kThreads) losses(CrossEntropyRows rows, Wide<T>* loss, Wide<T>* statistics) {
  using W = Wide<T>;
  const int64_t row = blockIdx.x, label = rows.labels[row];
  const T* const x = static_cast<const T*>(rows.logits) + row * rows.columns;
  RowResult<W> result = {};
  W reference;
  if (is_class(label, rows.valid)) {
    const W of_label = static_cast<W>(x[label]);
    reference = of_label;
    RowSums<W> sums = row_sums<T, kPlain>(x, rows.valid, reference);
    if (!(sums.exps < kInfinity<W>)) {
      reference = largest(x, rows.valid);
      sums = row_sums<T, kPlain>(x, rows.valid, reference);
    }
    if (threadIdx.x == 0) result = row_result(sums, reference, of_label, rows.smoothing, rows.valid);
  } else {
    reference = label == kNoLabel ? W(0) : kNotANumber<W>;
    result = {reference, reference};
  }
  if (threadIdx.x != 0) return;
  loss[row] = result.loss;
  statistics[2 * row] = reference;
  statistics[2 * row + 1] = result.log_sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradients(CrossEntropyRows rows, const Wide<T>* statistics, const Wide<T>* scale, T* gradient_) {
  const int64_t row = blockIdx.x, label = rows.labels[row];
  const T* const x = static_cast<const T*>(rows.logits) + row * rows.columns;
  T* const gradient = gradient_ + row * rows.columns;
  const auto of_row = row_gradient(statistics + 2 * row, *scale, label, rows.smoothing, rows.valid);
  const int64_t learned = label == kNoLabel ? 0 : rows.valid;
  // What lies before the first access of sixteen bytes goes one by one.
  const auto apart = static_cast<int64_t>((16 - address(gradient) % 16) % 16 / sizeof(T));
  const int64_t begin = apart < learned ? apart : learned;
  for (int64_t c = threadIdx.x; c < begin; c += kThreads) gradient[c] = gradient_element(of_row, x[c], c);
  const bool packed = are_packs(address(gradient + begin));
  for_logits(x, begin, learned, [&](int64_t first, int some, const T(&here)[kEach]) {
    T to[kEach];
    for (int k = 0; k < kEach; ++k) to[k] = gradient_element(of_row, here[k], first + k);
    write<kEach>(gradient + first, some, packed && some == kEach, to);
  });
  for (int64_t c = learned + threadIdx.x; c < rows.columns; c += kThreads) gradient[c] = T();
}

template <class T>
void launch_losses(const CrossEntropyRows& rows, void* loss, void* statistics, void* stream) {
  MORTISE_LAUNCH((rows.smoothing == 0 ? losses<T, false> : losses<T, true>), static_cast<unsigned>(rows.rows), kThreads,
                 stream, rows, static_cast<Wide<T>*>(loss), static_cast<Wide<T>*>(statistics));
}
template <class T>
void launch_gradients(const CrossEntropyRows& rows, const void* statistics, const void* scale, void* gradient,
                      void* stream) {
  MORTISE_LAUNCH(gradients<T>, static_cast<unsigned>(rows.rows), kThreads, stream, rows,
                 static_cast<const Wide<T>*>(statistics), static_cast<const Wide<T>*>(scale),
                 static_cast<T*>(gradient));
}

}  // namespace

const char* cross_entropy_cuda(const CrossEntropyRows& rows, void* loss, void* statistics, void* stream) {
  if (rows.rows == 0) return nullptr;
  switch (rows.dtype) {
    case MORTISE_F64: launch_losses<double>(rows, loss, statistics, stream); break;
    case MORTISE_BF16: launch_losses<BF16>(rows, loss, statistics, stream); break;
    case MORTISE_F16: launch_losses<F16>(rows, loss, statistics, stream); break;
    default: launch_losses<float>(rows, loss, statistics, stream);
  }
  return launch_error();
}

const char* cross_entropy_gradient_cuda(const CrossEntropyRows& rows, const void* statistics, const void* scale,
                                        void* gradient, void* stream) {
  if (rows.rows == 0) return nullptr;
  switch (rows.dtype) {
    case MORTISE_F64: launch_gradients<double>(rows, statistics, scale, gradient, stream); break;
    case MORTISE_BF16: launch_gradients<BF16>(rows, statistics, scale, gradient, stream); break;
    case MORTISE_F16: launch_gradients<F16>(rows, statistics, scale, gradient, stream); break;
    default: launch_gradients<float>(rows, statistics, scale, gradient, stream);
  }
  return launch_error();
}

}  // namespace mortise::kernels
