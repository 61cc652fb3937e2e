// Adafactor: second moments as a row and a column a matrix, in tiles.
//
// Floor   20 bytes a parameter in fp32 (read g thrice, p once; write p): the mean squares must be known before the size
//         of the update, and that before the update. Nothing of the matrix' size is kept between.
// Plan    tiles of 128 × 1,024, whose size no number of threads changes; sums of a tile in fp64, eight lanes a row.
// No LibTorch headers: raw pointers.
#include "kernels/adafactor/adafactor.h"

#include <algorithm>
#include <numeric>

#include "kernels/adafactor/element.h"
#include "kernels/clones.h"
#include "kernels/floats/floats.h"

namespace mortise::kernels {
namespace {

constexpr int64_t kRows = kAdafactorRows, kColumns = kAdafactorColumns, kLanes = kAdafactorLanes;

// In one order whatever the instruction set: eight lanes, then their sum.
[[gnu::always_inline]] inline double sum_of_squares(const float* x, int64_t n, double each) {
  double lane[kLanes] = {}, rest = 0;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lane[l] += adafactor_square(x[i + l], each);
  for (; i < n; ++i) rest += adafactor_square(x[i], each);
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7])) + rest;
}

}  // namespace

// A tile, with what the stages do to it.
struct AdafactorTile {
  AdafactorTile(Adafactor& a, int64_t index)
      : all(a), tile(index), matrix(index / (a.row_blocks_ * a.column_blocks_)),
        row_block(index / a.column_blocks_ % a.row_blocks_), column_block(index % a.column_blocks_),
        row0(row_block * kRows), row1(std::min(row0 + kRows, a.rows_)), column0(column_block * kColumns),
        n(std::min(kColumns, a.columns_ - column0)) {}

  [[gnu::always_inline]] int64_t at(int64_t row) const { return (matrix * all.rows_ + row) * all.columns_ + column0; }
  [[gnu::always_inline]] void read_gradient(int64_t row, float* g) const {
    read_floats(all.arrays_.grad, all.arrays_.g, at(row), n, g);
    const auto multiplier = static_cast<float>(all.step_.multiplier);
    for (int64_t i = 0; i < n; ++i) g[i] *= multiplier;
  }
  // U before it is clipped.
  [[gnu::always_inline]] void read_direction(int64_t row, float* u) const {
    read_gradient(row, u);
    if (const float* v = all.arrays_.v) {
      for (int64_t i = 0; i < n; ++i) u[i] *= adafactor_vector_factor(v[at(row) + i]);
      return;
    }
    const float row_factor =
        adafactor_row_factor(all.arrays_.row[matrix * all.rows_ + row], all.row_means_[static_cast<size_t>(matrix)]);
    const float* column_factor = &all.column_factors_[static_cast<size_t>(matrix * all.columns_ + column0)];
    for (int64_t i = 0; i < n; ++i) u[i] *= row_factor * column_factor[i];
  }

  [[gnu::always_inline]] void sum_squares() const {
    float x[kColumns];
    double column[kColumns] = {};
    double weights = 0;
    const double eps = all.settings_.eps;
    for (int64_t row = row0; row < row1; ++row) {
      if (all.settings_.scale_parameter) {
        read_floats(all.arrays_.master, all.arrays_.p, at(row), n, x);
        weights += sum_of_squares(x, n, 0);
      }
      read_gradient(row, x);
      if (all.arrays_.v) {
        average_vector(row, x);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) column[i] += adafactor_square(x[i], eps);
      all.row_sums_[static_cast<size_t>((matrix * all.rows_ + row) * all.column_blocks_ + column_block)] =
          sum_of_squares(x, n, eps);
    }
    all.p_squares_[static_cast<size_t>(tile)] = weights;
    if (all.arrays_.v) return;
    float* to = &all.column_sums_[static_cast<size_t>((matrix * all.row_blocks_ + row_block) * all.columns_ + column0)];
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(column[i]);
  }

  [[gnu::always_inline]] void average_vector(int64_t row, const float* g) const {
    float* v = all.arrays_.v + at(row);
    const double beta2 = all.step_.beta2, eps = all.settings_.eps;
    for (int64_t i = 0; i < n; ++i) v[i] = adafactor_average(beta2, v[i], adafactor_square(g[i], eps));
  }

  [[gnu::always_inline]] void measure() const {
    float u[kColumns];
    double sum = 0;
    for (int64_t row = row0; row < row1; ++row) {
      read_direction(row, u);
      sum += sum_of_squares(u, n, 0);
    }
    all.squares_[static_cast<size_t>(tile)] = sum;
  }

  [[gnu::always_inline]] void update() const {
    const AdafactorArrays& a = all.arrays_;
    const AdafactorNumbers k = adafactor_numbers(all.settings_, all.step_, all.rate_, all.clipped_rate_);
    float u[kColumns], p[kColumns];
    for (int64_t row = row0; row < row1; ++row) {
      read_direction(row, u);
      for (int64_t i = 0; i < n; ++i) u[i] *= k.factor;
      if (float* m = a.m ? a.m + at(row) : nullptr)
        for (int64_t i = 0; i < n; ++i) u[i] = m[i] = adafactor_moment(k, m[i], u[i]);
      read_floats(a.master, a.p, at(row), n, p);
      for (int64_t i = 0; i < n; ++i) p[i] = adafactor_weight(k, p[i], u[i]);
      write_floats(a.master, a.p, at(row), n, p);
      if (a.copy) write_floats(MORTISE_BF16, a.copy, at(row), n, p);
    }
  }

  Adafactor& all;
  int64_t tile, matrix, row_block, column_block, row0, row1, column0, n;
};

namespace {

// target_clones wants plain functions.
MORTISE_CLONES void sum_squares_of(const AdafactorTile& tile) { tile.sum_squares(); }
MORTISE_CLONES void measure_of(const AdafactorTile& tile) { tile.measure(); }
MORTISE_CLONES void update_of(const AdafactorTile& tile) { tile.update(); }

}  // namespace

Adafactor::Adafactor(const AdafactorSettings& settings, const AdafactorStep& step, const AdafactorArrays& arrays,
                     int64_t elements, int64_t rows, int64_t columns)
    : settings_(settings), step_(step), arrays_(arrays), matrices_(elements == 0 ? 0 : elements / (rows * columns)),
      rows_(rows), columns_(columns), row_blocks_(adafactor_blocks(rows, kRows)),
      column_blocks_(adafactor_blocks(columns, kColumns)) {
  squares_.resize(static_cast<size_t>(tiles()));
  p_squares_.resize(squares_.size());
  if (arrays_.v) return;
  row_sums_.resize(static_cast<size_t>(matrices_ * rows_ * column_blocks_));
  column_sums_.resize(static_cast<size_t>(matrices_ * row_blocks_ * columns_));
  band_sums_.resize(static_cast<size_t>(matrices_ * row_blocks_));
  row_means_.resize(static_cast<size_t>(matrices_));
  column_factors_.resize(static_cast<size_t>(matrices_ * columns_));
}

void Adafactor::sum_squares(int64_t tile) { sum_squares_of({*this, tile}); }
void Adafactor::measure(int64_t tile) { measure_of({*this, tile}); }
void Adafactor::update(int64_t tile) { update_of({*this, tile}); }

void Adafactor::average(int64_t band) {
  const int64_t each = row_blocks_ + column_blocks_, matrix = band / each, block = band % each;
  block < row_blocks_ ? average_rows(matrix, block) : average_columns(matrix, block - row_blocks_);
}

void Adafactor::average_rows(int64_t matrix, int64_t block) {
  double band = 0;
  for (int64_t r = block * kRows; r < std::min((block + 1) * kRows, rows_); ++r) {
    double s = 0;
    for (int64_t b = 0; b < column_blocks_; ++b)
      s += row_sums_[static_cast<size_t>((matrix * rows_ + r) * column_blocks_ + b)];
    float& row = arrays_.row[matrix * rows_ + r];
    row = adafactor_average(step_.beta2, row, s / static_cast<double>(columns_));
    band += row;
  }
  band_sums_[static_cast<size_t>(matrix * row_blocks_ + block)] = band;
}

void Adafactor::average_columns(int64_t matrix, int64_t block) {
  const int64_t first = block * kColumns, n = std::min(kColumns, columns_ - first);
  double sums[kColumns] = {};
  for (int64_t b = 0; b < row_blocks_; ++b) {
    const float* of = &column_sums_[static_cast<size_t>((matrix * row_blocks_ + b) * columns_ + first)];
    for (int64_t c = 0; c < n; ++c) sums[c] += of[c];
  }
  float* column = arrays_.column + matrix * columns_ + first;
  float* factor = &column_factors_[static_cast<size_t>(matrix * columns_ + first)];
  for (int64_t c = 0; c < n; ++c) {
    column[c] = adafactor_average(step_.beta2, column[c], sums[c] / static_cast<double>(rows_));
    factor[c] = adafactor_column_factor(column[c]);
  }
}

void Adafactor::prepare() {
  const double squares = std::accumulate(p_squares_.begin(), p_squares_.end(), 0.0);
  rate_ = adafactor_rate(settings_, step_, squares, static_cast<double>(matrices_ * rows_ * columns_));
  for (size_t i = 0; i < row_means_.size(); ++i) {
    const auto first = band_sums_.begin() + static_cast<int64_t>(i) * row_blocks_;
    row_means_[i] = std::accumulate(first, first + row_blocks_, 0.0) / static_cast<double>(rows_);
  }
}

void Adafactor::clip() {
  const double squares = std::accumulate(squares_.begin(), squares_.end(), 0.0);
  clipped_rate_ = adafactor_clipped(settings_, rate_, squares, static_cast<double>(matrices_ * rows_ * columns_));
}

}  // namespace mortise::kernels
