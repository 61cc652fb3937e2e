// Adafactor of all parameters in six launches, one a stage.
//
// Floor   20 bytes a parameter with weights and gradients in F32 (read g thrice, p once; write p), 22 with the copy
//         in 16 bits, as on the host's processor: nothing of the matrix' size is kept between.
// Plan    a block a tile of 128 × 1,024 of one parameter, in every launch the same; stages of rows or columns leave
//         most blocks idle. Sums are added as the host's processor adds them: of a row of a tile in eight chains, one a
//         thread, whose latency other rows and other tiles hide. The first stage needs squares by column and by row: it
//         reads them by column, as they lie, and passes four rows at a time through shared memory.
#include "kernels/adafactor/adafactor_cuda.h"
#include "kernels/adafactor/element.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/slices.h"

namespace mortise::kernels {
namespace {

constexpr int kRows = kAdafactorRows, kColumns = kAdafactorColumns, kLanes = kAdafactorLanes;
constexpr int kEach = kColumns / kSliceThreads;  // columns of a thread
constexpr int kPassed = 32 / kLanes;             // rows that pass through shared memory at a time: one warp adds them
using Table = SliceTable<AdafactorSlice>;

// Where in a parameter's space what lies, in doubles.
struct Space {
  MORTISE_BOTH Space(int64_t matrices, int64_t rows, int64_t columns, bool is_vector) {
    const int64_t row_blocks = adafactor_blocks(rows, kRows), column_blocks = adafactor_blocks(columns, kColumns);
    const int64_t tiles = matrices * row_blocks * column_blocks;
    squares = 2;
    p_squares = squares + tiles;
    row_sums = p_squares + tiles;
    size = row_sums;
    if (is_vector) return;
    column_sums = row_sums + matrices * rows * column_blocks;
    band_sums = column_sums + (matrices * row_blocks * columns + 1) / 2;
    row_means = band_sums + matrices * row_blocks;
    column_factors = row_means + matrices;
    size = column_factors + (matrices * columns + 1) / 2;
  }
  int64_t rate = 0, clipped = 1;
  int64_t squares, p_squares;            // [tiles]
  int64_t row_sums;                      // [matrices, rows, column blocks]
  int64_t column_sums = 0;               // [matrices, row blocks, columns], floats
  int64_t band_sums = 0, row_means = 0;  // [matrices, row blocks], [matrices]
  int64_t column_factors = 0;            // [matrices, columns], floats
  int64_t size;
};

// The tile of a block.
struct Tile {
  __device__ explicit Tile(const Table& table) : Tile(table, table.place(static_cast<int32_t>(blockIdx.x))) {}
  __device__ Tile(const Table& table, const Table::Place& place)
      : s(table.slices[place.slice]), of(s.matrices, s.rows, s.columns, !s.column), index(place.block),
        row_blocks(static_cast<int32_t>(adafactor_blocks(s.rows, kRows))),
        column_blocks(static_cast<int32_t>(adafactor_blocks(s.columns, kColumns))),
        matrix(index / (row_blocks * column_blocks)), row_block(index / column_blocks % row_blocks),
        column_block(index % column_blocks) {
    const int64_t rows_left = s.rows - row0(), columns_left = s.columns - column0();
    rows = static_cast<int>(rows_left < kRows ? rows_left : kRows);
    n = static_cast<int>(columns_left < kColumns ? columns_left : kColumns);
  }
  __device__ bool is_vector() const { return !s.column; }
  __device__ int64_t row0() const { return int64_t{row_block} * kRows; }
  __device__ int64_t column0() const { return int64_t{column_block} * kColumns; }
  // The first element of one of its rows; the number of that row among those of all matrices.
  __device__ int64_t at(int row) const { return row_of(row) * s.columns + column0(); }
  __device__ int64_t row_of(int row) const { return matrix * s.rows + row0() + row; }
  __device__ double* space(int64_t part) const { return s.space + part; }
  // Of the first row block, from its first column on.
  __device__ float* column_sums() const {
    return reinterpret_cast<float*>(space(of.column_sums)) + matrix * row_blocks * s.columns + column0();
  }
  __device__ float* column_factors() const {
    return reinterpret_cast<float*>(space(of.column_factors)) + matrix * s.columns + column0();
  }
  __device__ double elements() const { return static_cast<double>(s.matrices * s.rows * s.columns); }

  const AdafactorSlice& s;
  Space of;
  int32_t index, row_blocks, column_blocks, matrix, row_block, column_block;
  int rows, n;
};

// A thread's columns of a tile.
struct Columns {
  __device__ explicit Columns(const Tile& tile) : first(static_cast<int>(threadIdx.x) * kEach) {
    const AdafactorSlice& s = tile.s;
    const int left = tile.n - first;
    n = left < 0 ? 0 : left < kEach ? left : kEach;
    packed = n == kEach && s.columns % kEach == 0 &&
             are_packs(address(s.p) | address(s.g) | address(s.row) | address(s.m) | address(s.copy));
  }
  int first, n;
  bool packed;
};

// from[0] + from[stride] + …, in this order; many of them are under way at a time.
template <class T>
__device__ double add_all(const T* from, int64_t n, int64_t stride = 1) {
  constexpr int kAtOnce = 16;
  double sum = 0;
  T x[kAtOnce];
  int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    for (int k = 0; k < kAtOnce; ++k) x[k] = from[(i + k) * stride];
    for (int k = 0; k < kAtOnce; ++k) sum += x[k];
  }
  for (; i < n; ++i) sum += from[i * stride];
  return sum;
}

// value(0) + … + value(n - 1), by the eight threads that have this row.
template <class Value>
__device__ double add_row(int n, const Value& value) {
  constexpr int kAtOnce = 8;
  const int whole = n / kLanes * kLanes;
  double sum = 0, rest = 0, x[kAtOnce];
  int i = static_cast<int>(threadIdx.x) % kLanes;
  for (; i + (kAtOnce - 1) * kLanes < whole; i += kAtOnce * kLanes) {
    for (int k = 0; k < kAtOnce; ++k) x[k] = value(i + k * kLanes);
    for (int k = 0; k < kAtOnce; ++k) sum += x[k];
  }
  for (; i < whole; i += kLanes) sum += value(i);
  for (i = whole; i < n; ++i) rest += value(i);
  sum += __shfl_xor_sync(~0u, sum, 4);
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum + rest;
}

// The sum of value(row, column) over a tile, in thread 0.
template <class Value>
__device__ double add_tile(const Tile& tile, const Value& value) {
  __shared__ double rows[kRows];
  for (int first = 0; first < tile.rows; first += kSliceThreads / kLanes) {
    const int row = first + static_cast<int>(threadIdx.x) / kLanes;
    const double sum = add_row(row < tile.rows ? tile.n : 0, [&](int i) { return value(row, i); });
    if (row < tile.rows && threadIdx.x % kLanes == 0) rows[row] = sum;
  }
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (int row = 0; row < tile.rows; ++row) sum += rows[row];
  return sum;
}

// body(T()) for the type of the elements.
template <class Body>
__device__ void with_type(uint32_t dtype, const Body& body) {
  switch (dtype) {
    case MORTISE_F32: return body(float());
    case MORTISE_F64: return body(double());
    case MORTISE_BF16: return body(BF16());
    default: return body(F16());
  }
}

__device__ AdafactorStep step_of(const Tile& tile, const AdafactorSettings& settings, const DeviceLedger& ledger) {
  const int32_t group = tile.s.group;
  return adafactor_step(settings, ledger.lr[group], ledger.weight_decay[group], *ledger.multiplier,
                        static_cast<double>(*ledger.applied + 1));
}

// A thread's gradients in a row of a tile.
__device__ void read_gradient(const Tile& tile, const Columns& mine, int row, float multiplier, float (&g)[kEach]) {
  read_floats(tile.s.grad, tile.s.g, tile.at(row) + mine.first, mine.n, mine.packed, g);
  for (int k = 0; k < kEach; ++k) g[k] *= multiplier;
}

// ---- 1. squares of gradients, and of weights if the rate needs them ----

__device__ void sum_matrix(const Tile& tile, float multiplier, double eps) {
  alignas(16) __shared__ double passed[kPassed][kColumns + kLanes];  // rows begin in other banks
  const Columns mine(tile);
  double column[kEach] = {}, square[kEach];
  float g[kPassed][kEach];
  const auto read_rows = [&](int first) {
    for (int k = 0; k < kPassed; ++k)
      if (first + k < tile.rows) read_gradient(tile, mine, first + k, multiplier, g[k]);
  };
  read_rows(0);
  for (int first = 0; first < tile.rows; first += kPassed) {
    for (int k = 0; k < kPassed; ++k) {
      if (first + k >= tile.rows) break;
      for (int c = 0; c < kEach; ++c) column[c] += square[c] = adafactor_square(g[k][c], eps);
      write(&passed[k][mine.first], kEach, true, square);
    }
    read_rows(first + kPassed);  // under way while the rows are added
    __syncthreads();
    if (threadIdx.x < 32) {
      const int k = static_cast<int>(threadIdx.x) / kLanes, row = first + k;
      const double sum = add_row(row < tile.rows ? tile.n : 0, [&](int i) { return passed[k][i]; });
      if (row < tile.rows && threadIdx.x % kLanes == 0)
        tile.space(tile.of.row_sums)[tile.row_of(row) * tile.column_blocks + tile.column_block] = sum;
    }
    __syncthreads();
  }
  float sums[kEach];
  for (int c = 0; c < kEach; ++c) sums[c] = static_cast<float>(column[c]);
  write(tile.column_sums() + tile.row_block * tile.s.columns + mine.first, mine.n, false, sums);
}

__device__ void average_vector(const Tile& tile, const AdafactorStep& step, double eps) {
  const Columns mine(tile);
  float g[kEach], v[kEach];
  for (int row = 0; row < tile.rows; ++row) {
    float* const v_there = tile.s.row + tile.at(row) + mine.first;
    read_gradient(tile, mine, row, static_cast<float>(step.multiplier), g);
    read(v_there, mine.n, mine.packed, v);
    for (int k = 0; k < kEach; ++k) v[k] = adafactor_average(step.beta2, v[k], adafactor_square(g[k], eps));
    write(v_there, mine.n, mine.packed, v);
  }
}

__global__ void __launch_bounds__(kSliceThreads)
    sum_squares(const __grid_constant__ Table table, DeviceLedger ledger, AdafactorSettings settings) {
  if (*ledger.verdict == 0) return;
  const Tile tile(table);
  if (settings.scale_parameter)
    with_type(tile.s.master, [&](auto zero) {
      const auto* const p = static_cast<const decltype(zero)*>(tile.s.p);
      const double sum =
          add_tile(tile, [&](int row, int i) { return adafactor_square(static_cast<float>(p[tile.at(row) + i]), 0); });
      if (threadIdx.x == 0) tile.space(tile.of.p_squares)[tile.index] = sum;
    });
  if (tile.is_vector()) average_vector(tile, step_of(tile, settings, ledger), settings.eps);
  else sum_matrix(tile, static_cast<float>(*ledger.multiplier), settings.eps);
}

// ---- 2. rows and columns ----

__device__ void average_rows(const Tile& tile, double beta2) {
  __shared__ float rows[kRows];
  const int row = static_cast<int>(threadIdx.x);
  if (row < tile.rows) {
    const double* const sums = tile.space(tile.of.row_sums) + tile.row_of(row) * tile.column_blocks;
    float& state = tile.s.row[tile.row_of(row)];
    state = adafactor_average(beta2, state, add_all(sums, tile.column_blocks) / static_cast<double>(tile.s.columns));
    rows[row] = state;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double band = 0;
  for (int r = 0; r < tile.rows; ++r) band += rows[r];
  tile.space(tile.of.band_sums)[tile.matrix * tile.row_blocks + tile.row_block] = band;
}

__device__ void average_column(const Tile& tile, int column, double beta2) {
  const int64_t columns = tile.s.columns;
  const float* const sums = tile.column_sums() + column;
  float& state = tile.s.column[tile.matrix * columns + tile.column0() + column];
  state = adafactor_average(beta2, state, add_all(sums, tile.row_blocks, columns) / static_cast<double>(tile.s.rows));
  tile.column_factors()[column] = adafactor_column_factor(state);
}

__global__ void __launch_bounds__(kSliceThreads)
    average(const __grid_constant__ Table table, DeviceLedger ledger, AdafactorSettings settings) {
  if (*ledger.verdict == 0) return;
  const Tile tile(table);
  if (tile.is_vector() || (tile.column_block > 0 && tile.row_block >= kEach)) return;
  const double beta2 = step_of(tile, settings, ledger).beta2;
  if (tile.column_block == 0) average_rows(tile, beta2);
  // A quarter of the columns for each of the first four tiles below one another, the rest for the last if there are
  // less.
  for (int quarter = 0; quarter < kEach; ++quarter) {
    const int column = quarter * kSliceThreads + static_cast<int>(threadIdx.x);
    const int last = tile.row_blocks - 1;
    if (tile.row_block == (quarter < last ? quarter : last) && column < tile.n) average_column(tile, column, beta2);
  }
}

// ---- 3. the mean of each matrix' rows ----

__global__ void __launch_bounds__(32) average_matrices(const __grid_constant__ Table table, DeviceLedger ledger) {
  if (*ledger.verdict == 0) return;
  const Tile tile(table);
  if (tile.is_vector() || tile.row_block > 0 || tile.column_block > 0 || threadIdx.x > 0) return;
  const double* const bands = tile.space(tile.of.band_sums) + tile.matrix * tile.row_blocks;
  tile.space(tile.of.row_means)[tile.matrix] = add_all(bands, tile.row_blocks) / static_cast<double>(tile.s.rows);
}

// ---- 4. U ----

// The rows' factors of a tile, for all threads.
__device__ const float* row_factors(const Tile& tile) {
  __shared__ float factors[kRows];
  const int row = static_cast<int>(threadIdx.x);
  if (!tile.is_vector() && row < tile.rows)
    factors[row] = adafactor_row_factor(tile.s.row[tile.row_of(row)], tile.space(tile.of.row_means)[tile.matrix]);
  __syncthreads();
  return factors;
}

__global__ void __launch_bounds__(kSliceThreads) measure(const __grid_constant__ Table table, DeviceLedger ledger) {
  if (*ledger.verdict == 0) return;
  const Tile tile(table);
  const float* const by_row = row_factors(tile);
  const float* const by_column = tile.is_vector() ? nullptr : tile.column_factors();
  const auto multiplier = static_cast<float>(*ledger.multiplier);
  with_type(tile.s.grad, [&](auto zero) {
    const auto* const g = static_cast<const decltype(zero)*>(tile.s.g);
    const double sum = add_tile(tile, [&](int row, int i) {
      const int64_t at = tile.at(row) + i;
      const float factor = by_column ? by_row[row] * by_column[i] : adafactor_vector_factor(tile.s.row[at]);
      return adafactor_square(static_cast<float>(g[at]) * multiplier * factor, 0);
    });
    if (threadIdx.x == 0) tile.space(tile.of.squares)[tile.index] = sum;
  });
}

// ---- 5. the rate, and the rate that RMS(U) leaves ----

__global__ void __launch_bounds__(32)
    clip(const __grid_constant__ Table table, DeviceLedger ledger, AdafactorSettings settings) {
  if (*ledger.verdict == 0) return;
  const Tile tile(table);
  if (tile.index > 0 || threadIdx.x > 0) return;
  const int64_t tiles = tile.s.matrices * tile.row_blocks * tile.column_blocks;
  const double weights = settings.scale_parameter ? add_all(tile.space(tile.of.p_squares), tiles) : 0;
  const double rate = adafactor_rate(settings, step_of(tile, settings, ledger), weights, tile.elements());
  const double squares = add_all(tile.space(tile.of.squares), tiles);
  *tile.space(tile.of.rate) = rate;
  *tile.space(tile.of.clipped) = adafactor_clipped(settings, rate, squares, tile.elements());
}

// ---- 6. m, p and the copy ----

__global__ void __launch_bounds__(kSliceThreads)
    update(const __grid_constant__ Table table, DeviceLedger ledger, AdafactorSettings settings) {
  if (*ledger.verdict == 0) return;
  const Tile tile(table);
  const AdafactorSlice& s = tile.s;
  const float* const by_row = row_factors(tile);
  const Columns mine(tile);
  const auto multiplier = static_cast<float>(*ledger.multiplier);
  const AdafactorStep step = {0, ledger.weight_decay[s.group], 0, 0};
  const AdafactorNumbers numbers =
      adafactor_numbers(settings, step, *tile.space(tile.of.rate), *tile.space(tile.of.clipped));
  float by_column[kEach], g[kEach], p[kEach], m[kEach];
  if (!tile.is_vector()) read(tile.column_factors() + mine.first, mine.n, false, by_column);
  for (int row = 0; row < tile.rows; ++row) {
    const int64_t at = tile.at(row) + mine.first;
    read_gradient(tile, mine, row, multiplier, g);
    read_floats(s.master, s.p, at, mine.n, mine.packed, p);
    if (s.m) read(s.m + at, mine.n, mine.packed, m);
    float v[kEach];
    if (tile.is_vector()) read(s.row + at, mine.n, mine.packed, v);
    for (int k = 0; k < kEach; ++k) {
      const float factor = tile.is_vector() ? adafactor_vector_factor(v[k]) : by_row[row] * by_column[k];
      float u = g[k] * factor * numbers.factor;
      if (s.m) u = m[k] = adafactor_moment(numbers, m[k], u);
      p[k] = adafactor_weight(numbers, p[k], u);
    }
    write_floats(s.master, s.p, at, mine.n, mine.packed, p);
    if (s.m) write(s.m + at, mine.n, mine.packed, m);
    if (s.copy) write_floats(s.copy_dtype, s.copy, at, mine.n, mine.packed, p);
  }
}

int64_t tiles_of(const AdafactorSlice& s) {
  return s.matrices * adafactor_blocks(s.rows, kRows) * adafactor_blocks(s.columns, kColumns);
}

}  // namespace

int64_t adafactor_space(int64_t matrices, int64_t rows, int64_t columns, bool is_vector) {
  return Space(matrices, rows, columns, is_vector).size;
}

const char* adafactor_cuda(const AdafactorSlice* slices, int64_t n, const AdafactorSettings& settings,
                           const DeviceLedger& ledger, void* stream) {
  for_tables(slices, n, tiles_of, [&](const Table& table, int32_t tiles) {
    MORTISE_LAUNCH(sum_squares, tiles, kSliceThreads, stream, table, ledger, settings);
    MORTISE_LAUNCH(average, tiles, kSliceThreads, stream, table, ledger, settings);
    MORTISE_LAUNCH(average_matrices, tiles, 32, stream, table, ledger);
    MORTISE_LAUNCH(measure, tiles, kSliceThreads, stream, table, ledger);
    MORTISE_LAUNCH(clip, tiles, 32, stream, table, ledger, settings);
    MORTISE_LAUNCH(update, tiles, kSliceThreads, stream, table, ledger, settings);
  });
  return launch_error();
}

}  // namespace mortise::kernels
