// Probabilities of attention and their gradients, a row at a time.
//
// Floor   8 bytes a probability forward (read, write), 16 backward (both arrays); ten rounds of Philox for eight of
//         them and an exponential each hide behind that.
// Plan    a warp a row of up to 1,024 keys, a block a longer one. A row stays in registers from its first reading to
//         its writing (from 16,385 keys on backward has too few): a lane has groups of eight keys, each two accesses of
//         sixteen bytes and a Philox block.
#include <cmath>

#include "kernels/cuda/floats.h"
#include "kernels/dropout/kept.h"
#include "kernels/probabilities/probabilities_cuda.h"

namespace mortise::kernels {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAll = 0xFFFFFFFFu;

struct Job {
  Probabilities a;
  int64_t first, n;
  float *scores, *grads;
  uint32_t threshold;  // 0: nothing is dropped
  float kept_scale;
  bool packed;  // every group of eight lies at a multiple of sixteen bytes
};

// What of a row a lane has: kGroups groups of eight, kLanes groups apart.
template <int kGroups>
using Groups = float[kGroups][8];

struct Largest {
  __device__ float operator()(float x, float y) const { return fmaxf(x, y); }
};
struct Sum {
  __device__ float operator()(float x, float y) const { return x + y; }
};

// Of the lanes of a row. All get the same.
template <int kLanes, class Both>
__device__ __forceinline__ float of_row(float x, Both both) {
  MORTISE_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) x = both(x, __shfl_xor_sync(kAll, x, mask));
  if constexpr (kLanes > 32) {
    __shared__ float of_warp[kLanes / 32];
    __syncthreads();  // who reads the ones before
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warp[0];
    for (int i = 1; i < kLanes / 32; ++i) x = both(x, of_warp[i]);
  }
  return x;
}

// One row as its lanes see it.
template <int kLanes, int kGroups>
class Row {
 public:
  // `row` of [B·H·T].
  __device__ __forceinline__ Row(const Job& of, int64_t row)
      : job_(of), row_(row), lane_(static_cast<int>(threadIdx.x) % kLanes) {}

  __device__ __forceinline__ void read(const float* from, Groups<kGroups>& to) const {
    MORTISE_UNROLL
    for (int i = 0; i < kGroups; ++i)
      kernels::read<8>(from + offset() + key(i), there(i), job_.packed && there(i) == 8, to[i]);
  }
  __device__ __forceinline__ void write(float* to, const Groups<kGroups>& from) const {
    MORTISE_UNROLL
    for (int i = 0; i < kGroups; ++i)
      kernels::write<8>(to + offset() + key(i), there(i), job_.packed && there(i) == 8, from[i]);
  }

  // Which stay, a bit each, the first group's lowest.
  __device__ __forceinline__ uint32_t kept() const {
    if (job_.threshold == 0) return kAll;
    const mortise_philox place = place_now(job_.a.place);
    const uint64_t number = static_cast<uint64_t>(row_) * static_cast<uint64_t>(job_.a.keys);
    uint32_t mask = 0;
    MORTISE_UNROLL
    for (int i = 0; i < kGroups; ++i)
      mask |= kept_of_eight(place, number + static_cast<uint64_t>(key(i)), job_.threshold) << 8 * i;
    return mask;
  }

  // Products to probabilities.
  __device__ __forceinline__ void softmax(Groups<kGroups>& x) const {
    const Probabilities& a = job_.a;
    const float* added = a.added;
    int last = a.keys - 1;  // the last key that it sees
    if (added || a.causal) {
      const auto row = static_cast<uint32_t>(row_), T = static_cast<uint32_t>(a.queries);
      const uint32_t b_h = row / T, t = row % T, H = static_cast<uint32_t>(a.heads);
      if (added) added += b_h / H * a.added_strides[0] + b_h % H * a.added_strides[1] + t * a.added_strides[2];
      if (a.causal) last = static_cast<int>(t) + a.keys - a.queries;
    }
    float largest = -INFINITY, sum = 0;
    MORTISE_UNROLL
    for (int i = 0; i < kGroups; ++i) MORTISE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int at = key(i) + j;
      if (at > last) {
        x[i][j] = -INFINITY;
        continue;
      }
      x[i][j] *= a.scale;
      if (added) x[i][j] += added[at * a.added_strides[3]];
      largest = fmaxf(largest, x[i][j]);
    }
    largest = of_row<kLanes>(largest, Largest());
    MORTISE_UNROLL
    for (int i = 0; i < kGroups; ++i) MORTISE_UNROLL
    for (int j = 0; j < 8; ++j) sum += x[i][j] = expf(x[i][j] - largest);
    const float over_sum = 1.0f / of_row<kLanes>(sum, Sum());
    MORTISE_UNROLL
    for (int i = 0; i < kGroups; ++i) MORTISE_UNROLL
    for (int j = 0; j < 8; ++j) x[i][j] *= over_sum;
  }

 private:
  __device__ __forceinline__ int key(int i) const { return 8 * (lane_ + i * kLanes); }
  // How many of group i there are.
  __device__ __forceinline__ int there(int i) const {
    const int left = job_.a.keys - key(i);
    return left < 0 ? 0 : left < 8 ? left : 8;
  }
  __device__ __forceinline__ int64_t offset() const { return (row_ - job_.first) * job_.a.keys; }

  const Job& job_;
  const int64_t row_;
  const int lane_;
};

template <int kLanes>
constexpr int kBlock = kLanes > kThreads ? kLanes : kThreads;

template <int kLanes, int kGroups>
__global__ void __launch_bounds__(kBlock<kLanes>) to_probabilities(const __grid_constant__ Job job) {
  const int64_t at = int64_t{blockIdx.x} * (kBlock<kLanes> / kLanes) + threadIdx.x / kLanes;
  if (at >= job.n) return;
  const Row<kLanes, kGroups> row(job, job.first + at);
  Groups<kGroups> p;
  row.read(job.scores, p);
  const uint32_t kept = row.kept();
  row.softmax(p);
  MORTISE_UNROLL
  for (int i = 0; i < kGroups; ++i) MORTISE_UNROLL
  for (int j = 0; j < 8; ++j) p[i][j] *= kept >> (8 * i + j) & 1u ? job.kept_scale : 0;
  row.write(job.scores, p);
}

template <int kLanes, int kGroups>
__global__ void __launch_bounds__(kBlock<kLanes>) to_gradients(const __grid_constant__ Job job) {
  const int64_t at = int64_t{blockIdx.x} * (kBlock<kLanes> / kLanes) + threadIdx.x / kLanes;
  if (at >= job.n) return;
  const Row<kLanes, kGroups> row(job, job.first + at);
  Groups<kGroups> p, d;
  row.read(job.scores, p);
  row.read(job.grads, d);
  const uint32_t kept = row.kept();
  row.softmax(p);
  float dot = 0;
  MORTISE_UNROLL
  for (int i = 0; i < kGroups; ++i) MORTISE_UNROLL
  for (int j = 0; j < 8; ++j) {
    d[i][j] *= kept >> (8 * i + j) & 1u ? job.kept_scale : 0;
    dot += p[i][j] * d[i][j];
  }
  dot = of_row<kLanes>(dot, Sum());
  MORTISE_UNROLL
  for (int i = 0; i < kGroups; ++i) MORTISE_UNROLL
  for (int j = 0; j < 8; ++j) {
    d[i][j] = p[i][j] * (d[i][j] - dot) * job.a.scale;
    p[i][j] *= kept >> (8 * i + j) & 1u ? job.kept_scale : 0;
  }
  row.write(job.scores, p);
  row.write(job.grads, d);
}

template <int kLanes, int kGroups>
void launch(const Job& job, void* stream) {
  constexpr int64_t kRows = kBlock<kLanes> / kLanes;
  const auto blocks = static_cast<unsigned>((job.n + kRows - 1) / kRows);
  if (job.grads) MORTISE_LAUNCH((to_gradients<kLanes, kGroups>), blocks, kBlock<kLanes>, stream, job);
  else MORTISE_LAUNCH((to_probabilities<kLanes, kGroups>), blocks, kBlock<kLanes>, stream, job);
}

const char* run(Job job, void* stream) {
  struct Length {
    int64_t keys;
    void (*launch)(const Job&, void*);
  };
  static constexpr Length kLengths[] = {{256, launch<32, 1>},     {512, launch<32, 2>},        {1024, launch<32, 4>},
                                        {2048, launch<256, 1>},   {4096, launch<256, 2>},      {8192, launch<256, 4>},
                                        {16384, launch<1024, 2>}, {kMostKeys, launch<1024, 4>}};
  job.threshold = mortise_dropout_threshold(job.a.dropout);
  job.kept_scale = job.threshold < 65536 ? static_cast<float>(mortise_dropout_scale(job.a.dropout)) : 0;
  job.packed = job.a.keys % 8 == 0 &&
               (reinterpret_cast<uintptr_t>(job.scores) | reinterpret_cast<uintptr_t>(job.grads)) % 16 == 0;
  if (job.n == 0 || job.a.keys == 0) return nullptr;
  for (const Length& length : kLengths) {
    if (job.a.keys > length.keys) continue;
    length.launch(job, stream);
    return launch_error();
  }
  return "rows of probabilities have 32,768 keys at most";
}

}  // namespace

const char* probabilities_cuda(const Probabilities& a, int64_t first, int64_t n, float* scores, void* stream) {
  return run({a, first, n, scores, nullptr, 0, 0, false}, stream);
}

const char* probabilities_backward_cuda(const Probabilities& a, int64_t first, int64_t n, float* scores, float* grads,
                                        void* stream) {
  return run({a, first, n, scores, grads, 0, 0, false}, stream);
}

}  // namespace mortise::kernels
