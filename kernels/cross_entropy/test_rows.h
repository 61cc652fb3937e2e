// Rows of random logits with labels, and what the kernels make of them: for the tests of this folder.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/element.h"

namespace mortise::kernels {

template <class T>
struct TestRows {
  using W = Wide<T>;
  int64_t rows, columns, valid;
  double smoothing;
  size_t offset;  // elements before the first logit
  std::vector<T> logits, gradient;
  std::vector<int64_t> labels;
  std::vector<W> loss, statistics;

  // Row 1 has no label.
  TestRows(int64_t n, int64_t of, int64_t classes, double smooth, double deviation, size_t off = 0)
      : rows(n), columns(of), valid(classes), smoothing(smooth), offset(off) {
    std::mt19937 bits(static_cast<unsigned>(n * 7919 + of));
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    for (int64_t i = 0; i < n * of + static_cast<int64_t>(off); ++i) logits.push_back(static_cast<T>(normal(bits)));
    for (int64_t row = 0; row < n; ++row)
      labels.push_back(row == 1 ? kNoLabel : static_cast<int64_t>(bits() % static_cast<unsigned>(classes)));
    gradient.assign(logits.size(), static_cast<T>(7.f));
    loss.assign(labels.size(), W(7));
    statistics.assign(2 * labels.size(), W(7));
  }
  static constexpr uint32_t kDtype = std::is_same_v<T, double>  ? MORTISE_F64
                                     : std::is_same_v<T, float> ? MORTISE_F32
                                     : std::is_same_v<T, BF16>  ? MORTISE_BF16
                                                                : MORTISE_F16;
  CrossEntropyRows arrays() const {
    return {kDtype, logits.data() + offset, labels.data(), rows, columns, valid, smoothing};
  }
  void run(W scale) {
    cross_entropy(arrays(), loss.data(), statistics.data(), 0, rows);
    cross_entropy_gradient(arrays(), statistics.data(), &scale, gradient.data() + offset, 0, rows);
  }
  size_t index(int64_t row, int64_t column) const { return static_cast<size_t>(row * columns + column) + offset; }
  void set(int64_t row, int64_t column, float x) { logits[index(row, column)] = static_cast<T>(x); }
  long double at(int64_t row, int64_t c) const {
    return static_cast<long double>(static_cast<W>(logits[index(row, c)]));
  }
  double gradient_at(int64_t row, int64_t c) const {
    return static_cast<double>(static_cast<W>(gradient[index(row, c)]));
  }
  // How far apart the logits of a row are.
  double spread(int64_t row) const {
    long double low = at(row, 0), high = low;
    for (int64_t c = 0; c < valid; ++c) low = std::min(low, at(row, c)), high = std::max(high, at(row, c));
    return static_cast<double>(high - low);
  }
};

}  // namespace mortise::kernels
