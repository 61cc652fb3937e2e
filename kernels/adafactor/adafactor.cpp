// Adafactor: second moments as a row and a column a matrix, in tiles.
//
// Floor   20 bytes a parameter in fp32 (read g thrice, p once; write p): the mean squares must be known before the size
//         of the update, and that before the update. Nothing of the matrix' size is kept between.
// Plan    tiles of 64 × 1,024, whose size no number of threads changes; sums of a tile in fp64, eight lanes a row.
// No LibTorch headers: raw pointers.
#include "kernels/adafactor/adafactor.h"

#include <algorithm>
#include <cmath>

#include "kernels/clones.h"
#include "kernels/floats/floats.h"

namespace mortise::kernels {
namespace {

constexpr int64_t kRows = 64, kColumns = 1024;

int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

// In one order whatever the instruction set: eight lanes, then their sum.
[[gnu::always_inline]] inline double sum_of_squares(const float* x, int64_t n, double each) {
  double lane[8] = {}, rest = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t l = 0; l < 8; ++l) lane[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]) + each;
  for (; i < n; ++i) rest += static_cast<double>(x[i]) * static_cast<double>(x[i]) + each;
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
      for (int64_t i = 0; i < n; ++i) u[i] *= 1 / std::sqrt(v[at(row) + i]);
      return;
    }
    const double mean = all.arrays_.row[matrix * all.rows_ + row] / all.row_means_[static_cast<size_t>(matrix)];
    const auto row_factor = static_cast<float>(1 / std::sqrt(mean));
    const float* column_factor = &all.column_factors_[static_cast<size_t>(matrix * all.columns_ + column0)];
    for (int64_t i = 0; i < n; ++i) u[i] *= row_factor * column_factor[i];
  }

  [[gnu::always_inline]] void sum_squares() const {
    float x[kColumns];
    double column[kColumns] = {};
    double weights = 0;
    const double eps = all.step_.eps;
    for (int64_t row = row0; row < row1; ++row) {
      if (all.step_.scale_parameter) {
        read_floats(all.arrays_.master, all.arrays_.p, at(row), n, x);
        weights += sum_of_squares(x, n, 0);
      }
      read_gradient(row, x);
      if (all.arrays_.v) {
        average_vector(row, x);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) column[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]) + eps;
      all.row_sums_[static_cast<size_t>((matrix * all.rows_ + row) * all.column_blocks_ + column_block)] =
          sum_of_squares(x, n, eps);
    }
    all.p_squares_[static_cast<size_t>(tile)] = weights;
    if (all.arrays_.v) return;
    double* to =
        &all.column_sums_[static_cast<size_t>((matrix * all.row_blocks_ + row_block) * all.columns_ + column0)];
    std::copy_n(column, n, to);
  }

  [[gnu::always_inline]] void average_vector(int64_t row, const float* g) const {
    float* v = all.arrays_.v + at(row);
    const double beta2 = all.step_.beta2, rest2 = 1 - beta2, eps = all.step_.eps;
    for (int64_t i = 0; i < n; ++i)
      v[i] = static_cast<float>(beta2 * v[i] + rest2 * (static_cast<double>(g[i]) * static_cast<double>(g[i]) + eps));
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
    const auto factor = static_cast<float>(all.clipped_rate_);
    const auto decay = static_cast<float>(-all.step_.weight_decay * all.rate_);
    const auto beta1 = static_cast<float>(all.step_.beta1), rest1 = static_cast<float>(1 - all.step_.beta1);
    float u[kColumns], p[kColumns];
    for (int64_t row = row0; row < row1; ++row) {
      read_direction(row, u);
      for (int64_t i = 0; i < n; ++i) u[i] *= factor;
      if (float* m = a.m ? a.m + at(row) : nullptr)
        for (int64_t i = 0; i < n; ++i) u[i] = m[i] = m[i] * beta1 + rest1 * u[i];
      read_floats(a.master, a.p, at(row), n, p);
      for (int64_t i = 0; i < n; ++i) p[i] = p[i] + decay * p[i] - u[i];
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

Adafactor::Adafactor(const AdafactorStep& step, const AdafactorArrays& arrays, int64_t elements, int64_t rows,
                     int64_t columns)
    : step_(step), arrays_(arrays), matrices_(elements == 0 ? 0 : elements / (rows * columns)), rows_(rows),
      columns_(columns), row_blocks_(blocks(rows, kRows)), column_blocks_(blocks(columns, kColumns)) {
  squares_.resize(static_cast<size_t>(tiles()));
  p_squares_.resize(squares_.size());
  if (arrays_.v) return;
  row_sums_.resize(static_cast<size_t>(matrices_ * rows_ * column_blocks_));
  column_sums_.resize(static_cast<size_t>(matrices_ * row_blocks_ * columns_));
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
  for (int64_t r = block * kRows; r < std::min((block + 1) * kRows, rows_); ++r) {
    double s = 0;
    for (int64_t b = 0; b < column_blocks_; ++b)
      s += row_sums_[static_cast<size_t>((matrix * rows_ + r) * column_blocks_ + b)];
    float& row = arrays_.row[matrix * rows_ + r];
    row = static_cast<float>(step_.beta2 * row + (1 - step_.beta2) * (s / static_cast<double>(columns_)));
  }
}

void Adafactor::average_columns(int64_t matrix, int64_t block) {
  const int64_t first = block * kColumns, n = std::min(kColumns, columns_ - first);
  double sums[kColumns] = {};
  for (int64_t b = 0; b < row_blocks_; ++b) {
    const double* of = &column_sums_[static_cast<size_t>((matrix * row_blocks_ + b) * columns_ + first)];
    for (int64_t c = 0; c < n; ++c) sums[c] += of[c];
  }
  float* column = arrays_.column + matrix * columns_ + first;
  float* factor = &column_factors_[static_cast<size_t>(matrix * columns_ + first)];
  for (int64_t c = 0; c < n; ++c) {
    column[c] =
        static_cast<float>(step_.beta2 * column[c] + (1 - step_.beta2) * (sums[c] / static_cast<double>(rows_)));
    factor[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(column[c])));
  }
}

double Adafactor::root_mean(const std::vector<double>& squares) const {
  double sum = 0;
  for (const double one : squares) sum += one;
  return std::sqrt(sum / static_cast<double>(matrices_ * rows_ * columns_));
}

void Adafactor::prepare() {
  rate_ = step_.lr;
  if (step_.scale_parameter) rate_ *= std::max(step_.least_scale, root_mean(p_squares_));
  for (size_t i = 0; i < row_means_.size(); ++i) {
    const float* row = arrays_.row + static_cast<int64_t>(i) * rows_;
    for (int64_t r = 0; r < rows_; ++r) row_means_[i] += row[r];
    row_means_[i] /= static_cast<double>(rows_);
  }
}

void Adafactor::clip() { clipped_rate_ = rate_ / std::max(1.0, root_mean(squares_) / step_.clip_threshold); }

}  // namespace mortise::kernels
