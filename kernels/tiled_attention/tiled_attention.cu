// Attention with dropout by tiles, forward and backward.
//
// Floor   4·T·S·D operations a head forward, 14·T·S·D backward (products of scores and of their gradient are made
//         twice, so that no sum is atomic), on tensor cores; ten rounds of Philox for eight probabilities, three times.
// Plan    a block owns 64 rows, a warp 16 of them: queries where it sums over keys, keys where it sums over queries.
//         The other side comes a tile at a time through shared memory. Scores stay in registers; a tile of them is, as
//         it lies there, the left operand of the next product. Each lane draws the bits of whole Philox blocks and
//         hands them around as bytes, one bit a probability.
// Now     see docs/measurements.md.
#include <type_traits>

#include "kernels/cuda/tensor_cores.h"
#include "kernels/dropout/kept.h"
#include "kernels/tiled_attention/tiled_attention_cuda.h"

namespace mortise::kernels {
namespace {

constexpr int kOwn = 64, kThreads = 128;  // rows of a block: 16 for each of its four warps
constexpr float kLog2OfE = 1.4426950408889634f;
constexpr unsigned kAll = 0xFFFFFFFFu;

// Rows of the other side at a time: what registers and 48 KiB of shared memory hold.
template <int D>
constexpr int kTile = D == 64 ? 64 : 32;
// Blocks that share a multiprocessor, found by trial on an H200: more hide more of each other's waiting, until
// registers spill.
template <int D>
constexpr int kBeside = D == 64 ? 4 : 2;
template <int D>
constexpr int kBesideOfKeys = D == 64 ? 3 : 2;

struct Job {
  TiledAttention a;
  HeadsView y, dy, dq, dk, dv;
  float *largest, *over_sum, *dots;
  uint32_t threshold;  // 0: nothing is dropped
  float kept_scale;
};

// Sixteen rows by N tiles of eight columns, as multiply_add has them.
template <int N>
using Tiles = float[N][4];

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_row() { return static_cast<int>(threadIdx.x) / 32 * 16; }
// Where number i of a lane stands among the rows of its warp and the columns of its tile.
__device__ inline int row_of(int i) { return lane() / 4 + i / 2 * 8; }
__device__ inline int column_of(int i) { return lane() % 4 * 2 + i % 2; }

template <int N>
__device__ __forceinline__ void clear(Tiles<N>& c) {
  MORTISE_UNROLL
  for (int n = 0; n < N; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

// ---- tiles in shared memory ----

// Chunk `chunk` of `row`, moved so that eight rows of one column lie in eight different banks.
template <int D>
__device__ __forceinline__ int place_of(int row, int chunk) {
  return row * (D / 8) + (chunk ^ (row & 7));
}

__device__ __forceinline__ uint16_t* row_at(const HeadsView& v, int b, int h, int row) {
  return static_cast<uint16_t*>(v.data) + b * v.batch + h * v.head + row * v.row;
}

// Rows [first, first + kRows) of one head; zeros from `end` on.
template <int D, int kRows>
__device__ __forceinline__ void begin_tile(Chunk* to, const HeadsView& from, int b, int h, int first, int end) {
  const uint16_t* const base = row_at(from, b, h, 0);
  MORTISE_UNROLL
  for (int i = 0; i < kRows * D / 8 / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x), row = at / (D / 8), chunk = at % (D / 8);
    const bool there = first + row < end;
    begin_copy(&to[place_of<D>(row, chunk)], base + (there ? (first + row) * from.row : 0) + chunk * 8, there);
  }
}

// c += the warp's own rows of `left` · (the rows of `right`)ᵀ
template <class T, int D, int N>
__device__ __forceinline__ void add_rows_by_rows(Tiles<N>& c, const Chunk* left, const Chunk* right) {
  const int l = lane();
  MORTISE_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    uint32_t a[4];
    read_tiles(a, &left[place_of<D>(warp_row() + l % 16, 2 * k + l / 16)]);
    MORTISE_UNROLL
    for (int n = 0; n < N; n += 2) {
      uint32_t b[4];
      read_tiles(b, &right[place_of<D>(8 * n + l % 8 + l / 16 * 8, 2 * k + l / 8 % 2)]);
      multiply_add<T>(c[n], a, b[0], b[1]);
      multiply_add<T>(c[n + 1], a, b[2], b[3]);
    }
  }
}

// out += p · the rows of `right`
template <class T, int D, int N>
__device__ __forceinline__ void add_times_rows(Tiles<D / 8>& out, const Tiles<N>& p, const Chunk* right) {
  const int l = lane();
  MORTISE_UNROLL
  for (int k = 0; k < N / 2; ++k) {
    const uint32_t a[4] = {pair<T>(p[2 * k][0], p[2 * k][1]), pair<T>(p[2 * k][2], p[2 * k][3]),
                           pair<T>(p[2 * k + 1][0], p[2 * k + 1][1]), pair<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
    MORTISE_UNROLL
    for (int d = 0; d < D / 8; d += 2) {
      uint32_t b[4];
      read_tiles_turned(b, &right[place_of<D>(16 * k + l % 16, d + l / 16)]);
      multiply_add<T>(out[d], a, b[0], b[1]);
      multiply_add<T>(out[d + 1], a, b[2], b[3]);
    }
  }
}

// The warp's own rows, which begin at `first` of the head's, below `end`.
template <class T, int D>
__device__ __forceinline__ void write_rows(const HeadsView& to, int b, int h, int first, int end,
                                           const Tiles<D / 8>& out, const float (&scale)[2]) {
  MORTISE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first + row_of(2 * half);
    if (row >= end) continue;
    uint16_t* const at = row_at(to, b, h, row);
    MORTISE_UNROLL
    for (int d = 0; d < D / 8; ++d)
      *reinterpret_cast<uint32_t*>(at + 8 * d + column_of(0)) =
          pair<T>(out[d][2 * half] * scale[half], out[d][2 * half + 1] * scale[half]);
  }
}

// ---- scores ----

__device__ __forceinline__ const float* added_of(const TiledAttention& a, int b, int h) {
  return a.added ? a.added + b * a.added_strides[0] + h * a.added_strides[1] : nullptr;
}

// Behind the last key that a query of a block that begins at `first` may see.
__device__ __forceinline__ int end_of_keys(const TiledAttention& a, int first) {
  const int seen = first + kOwn + a.keys - a.queries;
  return a.causal && seen < a.keys ? seen : a.keys;
}

// Is every pair of [query, query + n) and [key, key + m) one that is there and allowed, with nothing added?
__device__ __forceinline__ bool is_plain(const TiledAttention& a, int query, int n, int key, int m) {
  return !a.added && query + n <= a.queries && key + m <= a.keys &&
         (!a.causal || key + m - 1 <= query + a.keys - a.queries);
}

// The score of a pair, of the product that it was: minus infinity where there is none.
__device__ __forceinline__ float score(const TiledAttention& a, const float* added, bool plain, float product,
                                       int query, int key) {
  const float x = product * a.scale;
  if (plain) return x;
  if (query >= a.queries || key >= a.keys || (a.causal && key > query + a.keys - a.queries)) return -INFINITY;
  return added ? x + added[query * a.added_strides[2] + key * a.added_strides[3]] : x;
}

__device__ __forceinline__ float exp_of(float x) { return power_of_two(x * kLog2OfE); }

// ---- what is dropped ----

// Which numbers of sixteen rows by N tiles stay. A lane draws for N/4 tiles, two groups of eight each; kTurned: rows
// are keys and columns queries, so that the eight of a group lie one below the other.
template <int N, bool kTurned>
class Kept {
 public:
  // `query` and `key` of the warp's first row and of the first column; `first` of the head's probabilities.
  __device__ __forceinline__ void draw(const Job& job, const mortise_philox& place, uint64_t first, int query,
                                       int key) {
    const int l = lane();
    uint32_t mine = 0;
    MORTISE_UNROLL
    for (int j = 0; j < N / 4; ++j) MORTISE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int q = kTurned ? query + l + 32 * j : query + l / 4 + 8 * half;
      const int k = kTurned ? key + 8 * half : key + 8 * (l % 4 + 4 * j);
      const uint64_t number =
          first + static_cast<uint64_t>(q) * static_cast<uint64_t>(job.a.keys) + static_cast<uint64_t>(k);
      mine |= kept_of_eight(place, number, job.threshold) << 8 * (half * (N / 4) + j);
    }
    MORTISE_UNROLL
    for (int i = 0; i < kWords; ++i)
      from_[i] = __shfl_sync(kAll, mine, kTurned ? i / 2 * 8 + column_of(i % 2) : l / 4 * 4 + i);
  }
  // Number i of tile n.
  __device__ __forceinline__ bool operator()(int n, int i) const {
    const int byte = i / 2 * (N / 4) + n / 4, bit = kTurned ? lane() / 4 : column_of(i);
    return from_[kTurned ? n % 4 * 2 + i % 2 : n % 4] >> (8 * byte + bit) & 1u;
  }

 private:
  static constexpr int kWords = kTurned ? 8 : 4;
  uint32_t from_[kWords];
};

// What a block works at.
struct Place {
  __device__ Place(const Job& job, int heads, int rows) {
    const int tiles = (rows + kOwn - 1) / kOwn, at = static_cast<int>(blockIdx.x);
    first = at % tiles * kOwn;
    h = at / tiles % heads;
    b = at / tiles / heads;
    if (job.threshold) philox = place_now(job.a.place);
  }
  int first, h, b;  // of its own rows
  mortise_philox philox = {};
};
// The number of the first probability of a head, and of its first row.
__device__ inline uint64_t row_number(const TiledAttention& a, int b, int h) {
  return (static_cast<uint64_t>(b) * static_cast<uint64_t>(a.heads) + static_cast<uint64_t>(h)) *
         static_cast<uint64_t>(a.queries);
}

__device__ inline float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAll, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAll, x, 2));
}
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor_sync(kAll, x, 1);
  return x + __shfl_xor_sync(kAll, x, 2);
}

// ---- forward ----

template <class T, int D>
__global__ void __launch_bounds__(kThreads, kBeside<D>) forward(const __grid_constant__ Job job) {
  constexpr int kKeys = kTile<D>, N = kKeys / 8;
  __shared__ Chunk q[kOwn * D / 8], k[kKeys * D / 8], v[kKeys * D / 8];
  const TiledAttention& a = job.a;
  const Place at(job, a.heads, a.queries);
  const int b = at.b, h = at.h, kv = h / (a.heads / a.kv_heads), own = at.first + warp_row();
  const float* const added = added_of(a, b, h);
  const uint64_t row_0 = row_number(a, b, h);
  const bool drops = job.threshold != 0;
  const int end = end_of_keys(a, at.first);

  float largest[2] = {-INFINITY, -INFINITY}, reference[2], sum[2] = {0, 0};
  Tiles<D / 8> out;
  clear<D / 8>(out);
  begin_tile<D, kOwn>(q, a.q, b, h, at.first, a.queries);
  begin_tile<D, kKeys>(k, a.k, b, kv, 0, a.keys);
  end_of_copies();
  for (int first = 0; first < end; first += kKeys) {
    begin_tile<D, kKeys>(v, a.v, b, kv, first, a.keys);
    end_of_copies();
    wait_for_copies<1>();  // k
    __syncthreads();
    Tiles<N> p;
    clear<N>(p);
    add_rows_by_rows<T, D, N>(p, q, k);
    __syncthreads();
    if (first + kKeys < end) begin_tile<D, kKeys>(k, a.k, b, kv, first + kKeys, a.keys);
    end_of_copies();

    const bool plain = is_plain(a, own, 16, first, kKeys);
    float now[2] = {largest[0], largest[1]};
    MORTISE_UNROLL
    for (int n = 0; n < N; ++n) MORTISE_UNROLL
    for (int i = 0; i < 4; ++i) {
      p[n][i] = score(a, added, plain, p[n][i], own + row_of(i), first + 8 * n + column_of(i));
      now[i / 2] = fmaxf(now[i / 2], p[n][i]);
    }
    MORTISE_UNROLL
    for (int half = 0; half < 2; ++half) {
      now[half] = largest_of_row(now[half]);
      reference[half] = now[half] == -INFINITY ? 0 : now[half];  // while all that was seen is hidden by an infinity
      const float shrink = exp_of(largest[half] - reference[half]);
      largest[half] = now[half];
      sum[half] *= shrink;
      MORTISE_UNROLL
      for (int d = 0; d < D / 8; ++d) {
        out[d][2 * half] *= shrink;
        out[d][2 * half + 1] *= shrink;
      }
    }
    Kept<N, false> kept;
    if (drops) kept.draw(job, at.philox, row_0 * static_cast<uint64_t>(a.keys), own, first);
    MORTISE_UNROLL
    for (int n = 0; n < N; ++n) MORTISE_UNROLL
    for (int i = 0; i < 4; ++i) {
      p[n][i] = exp_of(p[n][i] - reference[i / 2]);
      sum[i / 2] += p[n][i];
      if (drops && !kept(n, i)) p[n][i] = 0;
    }
    wait_for_copies<1>();  // v
    __syncthreads();
    add_times_rows<T, D, N>(out, p, v);
    __syncthreads();
  }

  float scale[2];
  MORTISE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float over_sum = 1.0f / sum_of_row(sum[half]);
    scale[half] = over_sum * job.kept_scale;
    const int row = own + row_of(2 * half);
    if (row < a.queries && lane() % 4 == 0) {
      job.largest[row_0 + static_cast<uint64_t>(row)] = largest[half];
      job.over_sum[row_0 + static_cast<uint64_t>(row)] = over_sum;
    }
  }
  write_rows<T, D>(job.y, b, h, own, a.queries, out, scale);
}

// ---- backward ----

// Σ y · dy of a row, by its four lanes.
template <class T, int D>
__device__ float dot_of_row(const Job& job, int b, int h, int row) {
  float sum = 0;
  if (row < job.a.queries) {
    const Chunk* const y = reinterpret_cast<const Chunk*>(row_at(job.y, b, h, row));
    const Chunk* const dy = reinterpret_cast<const Chunk*>(row_at(job.dy, b, h, row));
    for (int c = lane() % 4; c < D / 8; c += 4)
      for (int i = 0; i < 8; ++i) {
        T left, right;
        left.bits = y[c].at[i];
        right.bits = dy[c].at[i];
        sum += static_cast<float>(left) * static_cast<float>(right);
      }
  }
  return sum_of_row(sum);
}

// Of a pair: its probability, which is left in `p`, and the gradient of its score without the scale, in `d`, of the
// gradient that its probability would have if it stayed.
__device__ __forceinline__ void differentiate(float& p, float& d, float score, float largest, float over_sum, float dot,
                                              float kept_scale) {
  p = exp_of(score - largest) * over_sum;
  d = p * (d * kept_scale - dot);
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads, kBeside<D>) backward_of_queries(const __grid_constant__ Job job) {
  constexpr int kKeys = kTile<D>, N = kKeys / 8;
  __shared__ Chunk q[kOwn * D / 8], dy[kOwn * D / 8], k[kKeys * D / 8], v[kKeys * D / 8];
  const TiledAttention& a = job.a;
  const Place at(job, a.heads, a.queries);
  const int b = at.b, h = at.h, kv = h / (a.heads / a.kv_heads), own = at.first + warp_row();
  const float* const added = added_of(a, b, h);
  const uint64_t row_0 = row_number(a, b, h);
  const bool drops = job.threshold != 0;
  const int end = end_of_keys(a, at.first);

  float largest[2], over_sum[2], dot[2];
  MORTISE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = own + row_of(2 * half);
    const bool there = row < a.queries;
    const uint64_t number = row_0 + static_cast<uint64_t>(row);
    largest[half] = there ? job.largest[number] : 0;
    over_sum[half] = there ? job.over_sum[number] : 0;
    dot[half] = dot_of_row<T, D>(job, b, h, row);
    if (there && lane() % 4 == 0) job.dots[number] = dot[half];
  }
  Tiles<D / 8> out;
  clear<D / 8>(out);
  begin_tile<D, kOwn>(q, a.q, b, h, at.first, a.queries);
  begin_tile<D, kOwn>(dy, job.dy, b, h, at.first, a.queries);
  for (int first = 0; first < end; first += kKeys) {
    begin_tile<D, kKeys>(k, a.k, b, kv, first, a.keys);
    begin_tile<D, kKeys>(v, a.v, b, kv, first, a.keys);
    end_of_copies();
    Kept<N, false> kept;
    if (drops) kept.draw(job, at.philox, row_0 * static_cast<uint64_t>(a.keys), own, first);
    wait_for_copies<0>();
    __syncthreads();
    Tiles<N> p, d;
    clear<N>(p);
    clear<N>(d);
    add_rows_by_rows<T, D, N>(p, q, k);
    add_rows_by_rows<T, D, N>(d, dy, v);
    const bool plain = is_plain(a, own, 16, first, kKeys);
    MORTISE_UNROLL
    for (int n = 0; n < N; ++n) MORTISE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = score(a, added, plain, p[n][i], own + row_of(i), first + 8 * n + column_of(i));
      if (drops && !kept(n, i)) d[n][i] = 0;
      differentiate(p[n][i], d[n][i], x, largest[i / 2], over_sum[i / 2], dot[i / 2], job.kept_scale);
    }
    add_times_rows<T, D, N>(out, d, k);
    __syncthreads();
  }
  write_rows<T, D>(job.dq, b, h, own, a.queries, out, {a.scale, a.scale});
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads, kBesideOfKeys<D>) backward_of_keys(const __grid_constant__ Job job) {
  constexpr int kQueries = kTile<D>, N = kQueries / 8;
  __shared__ Chunk k[kOwn * D / 8], v[kOwn * D / 8], q[kQueries * D / 8], dy[kQueries * D / 8];
  const TiledAttention& a = job.a;
  const Place at(job, a.kv_heads, a.keys);
  const bool drops = job.threshold != 0;
  const int b = at.b, group = a.heads / a.kv_heads, own = at.first + warp_row();
  int begin = a.causal ? at.first - (a.keys - a.queries) : 0;  // the first query that sees a key of ours
  begin = begin < 0 ? 0 : begin / kQueries * kQueries;

  Tiles<D / 8> out_k, out_v;
  clear<D / 8>(out_k);
  clear<D / 8>(out_v);
  begin_tile<D, kOwn>(k, a.k, b, at.h, at.first, a.keys);
  begin_tile<D, kOwn>(v, a.v, b, at.h, at.first, a.keys);
  for (int h = at.h * group; h < (at.h + 1) * group; ++h) {
    const float* const added = added_of(a, b, h);
    const uint64_t row_0 = row_number(a, b, h);
    for (int first = begin; first < a.queries; first += kQueries) {
      begin_tile<D, kQueries>(q, a.q, b, h, first, a.queries);
      begin_tile<D, kQueries>(dy, job.dy, b, h, first, a.queries);
      end_of_copies();
      Kept<N, true> kept;
      if (drops) kept.draw(job, at.philox, row_0 * static_cast<uint64_t>(a.keys), first, own);
      wait_for_copies<0>();
      __syncthreads();
      Tiles<N> p, d;
      clear<N>(p);
      clear<N>(d);
      add_rows_by_rows<T, D, N>(p, k, q);
      add_rows_by_rows<T, D, N>(d, v, dy);
      const bool plain = is_plain(a, first, kQueries, own, 16);
      MORTISE_UNROLL
      for (int n = 0; n < N; ++n) MORTISE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int query = first + 8 * n + column_of(i);
        const bool there = query < a.queries;
        const uint64_t number = row_0 + static_cast<uint64_t>(there ? query : 0);
        const float x = score(a, added, plain, p[n][i], query, own + row_of(i));
        const bool stays = !drops || kept(n, i);
        if (!stays) d[n][i] = 0;
        differentiate(p[n][i], d[n][i], x, job.largest[number], job.over_sum[number], job.dots[number], job.kept_scale);
        if (!stays) p[n][i] = 0;
      }
      add_times_rows<T, D, N>(out_v, p, dy);
      add_times_rows<T, D, N>(out_k, d, q);
      __syncthreads();
    }
  }
  write_rows<T, D>(job.dk, b, at.h, own, a.keys, out_k, {a.scale, a.scale});
  write_rows<T, D>(job.dv, b, at.h, own, a.keys, out_v, {job.kept_scale, job.kept_scale});
}

// ---- launches ----

template <class T, int D>
void launch(const Job& job, bool is_forward, void* stream) {
  const TiledAttention& a = job.a;
  const auto blocks = [&](int heads, int rows) {
    return static_cast<unsigned>(int64_t{a.batch} * heads * ((rows + kOwn - 1) / kOwn));
  };
  const unsigned of_queries = blocks(a.heads, a.queries), of_keys = blocks(a.kv_heads, a.keys);
  if (is_forward) {
    MORTISE_LAUNCH((forward<T, D>), of_queries, kThreads, stream, job);
    return;
  }
  MORTISE_LAUNCH((backward_of_queries<T, D>), of_queries, kThreads, stream, job);
  MORTISE_LAUNCH((backward_of_keys<T, D>), of_keys, kThreads, stream, job);
}

const char* run(Job job, bool is_forward, void* stream) {
  struct Row {
    uint32_t dtype;
    int width;
    void (*launch)(const Job&, bool, void*);
  };
  static constexpr Row kRows[] = {{MORTISE_BF16, 64, launch<BF16, 64>},
                                  {MORTISE_BF16, 128, launch<BF16, 128>},
                                  {MORTISE_F16, 64, launch<F16, 64>},
                                  {MORTISE_F16, 128, launch<F16, 128>}};
  if (const char* why = tiled_attention_refuses(job.a.dtype, job.a.width)) return why;
  job.threshold = mortise_dropout_threshold(job.a.dropout);
  job.kept_scale = job.threshold < 65536 ? static_cast<float>(mortise_dropout_scale(job.a.dropout)) : 0;
  for (const Row& row : kRows)
    if (row.dtype == job.a.dtype && row.width == job.a.width) row.launch(job, is_forward, stream);
  return launch_error();
}

Job job_of(const TiledAttention& a, const HeadsView& y, const float* rows) {
  Job job = {};
  job.a = a;
  job.y = y;
  job.largest = const_cast<float*>(rows);
  job.over_sum = job.largest + int64_t{a.batch} * a.heads * a.queries;
  return job;
}

}  // namespace

const char* tiled_attention_cuda(const TiledAttention& a, const HeadsView& y, float* rows, void* stream) {
  return run(job_of(a, y, rows), true, stream);
}

const char* tiled_attention_backward_cuda(const TiledAttention& a, const HeadsView& y, const float* rows,
                                          const HeadsView& dy, const HeadsView& dq, const HeadsView& dk,
                                          const HeadsView& dv, float* dots, void* stream) {
  Job job = job_of(a, y, rows);
  job.dy = dy;
  job.dq = dq;
  job.dk = dk;
  job.dv = dv;
  job.dots = dots;
  return run(job, false, stream);
}

}  // namespace mortise::kernels
