#include "core/cli/merge.hpp"

#include <algorithm>

#include "core/base/diagnostic.hpp"
#include "core/base/dtype.hpp"
#include "mortise/dtype.h"

namespace mortise::cli {
namespace {

struct Matrix {
  int64_t rows, columns;
  std::vector<double> numbers;
  double* row(int64_t i) { return &numbers[static_cast<size_t>(i * columns)]; }
};

[[noreturn]] void refuse(const huggingface::Product& p, const std::string& why) {
  throw Failure(trouble(kExitData, "not_exported", "`" + p.left + "` cannot be merged into `" + p.into + "`: " + why,
                        "", "another checkpoint: --checkpoint STEP"));
}

TensorView& entry(TensorFile& file, const std::string& name, const huggingface::Product& p) {
  const auto found = std::ranges::find(file.entries, name, &TensorView::name);
  if (found == file.entries.end()) refuse(p, "the file has no `" + name + "`");
  if (found->sizes.size() != 2 || weight_type(found->dtype) == MORTISE_NO_DTYPE)
    refuse(p, "`" + name + "` is no matrix of floating-point numbers");
  return *found;
}

Matrix read(const TensorView& t) {
  const mortise_dtype_row& type = *mortise_dtype_of(weight_type(t.dtype));
  Matrix m{t.sizes[0], t.sizes[1], std::vector<double>(t.bytes / type.bytes)};
  for (size_t i = 0; i < m.numbers.size(); ++i)
    m.numbers[i] = mortise_element_get(type.dtype, static_cast<const char*>(t.data) + i * type.bytes);
  return m;
}

// into += scale × left · right
void add_product(Matrix& into, Matrix left, Matrix right, double scale, bool transposed) {
  std::vector<double> sum(static_cast<size_t>(right.columns));
  for (int64_t i = 0; i < left.rows; ++i) {
    std::ranges::fill(sum, 0.0);
    for (int64_t r = 0; r < right.rows; ++r) {
      const double factor = left.row(i)[r], *from = right.row(r);
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += factor * from[j];
    }
    for (int64_t j = 0; j < right.columns; ++j)
      (transposed ? into.row(j)[i] : into.row(i)[j]) += scale * sum[static_cast<size_t>(j)];
  }
}

}  // namespace

std::deque<std::vector<char>> merge_products(TensorFile& file, const std::vector<huggingface::Product>& products) {
  std::deque<std::vector<char>> owned;
  for (const huggingface::Product& p : products) {
    TensorView& t = entry(file, p.into, p);
    Matrix into = read(t), left = read(entry(file, p.left, p)), right = read(entry(file, p.right, p));
    const bool fits = left.columns == right.rows && (p.transposed ? into.columns : into.rows) == left.rows &&
                      (p.transposed ? into.rows : into.columns) == right.columns;
    if (!fits) refuse(p, "they have other shapes");
    add_product(into, std::move(left), std::move(right), p.scale, p.transposed);
    const mortise_dtype_row& type = *mortise_dtype_of(weight_type(t.dtype));
    std::vector<char>& bytes = owned.emplace_back(t.bytes);
    for (size_t i = 0; i < into.numbers.size(); ++i)
      mortise_element_set(type.dtype, &bytes[i * type.bytes], into.numbers[i]);
    t.data = bytes.data();
  }
  for (const huggingface::Product& p : products)
    std::erase_if(file.entries, [&](const TensorView& t) { return t.name == p.left || t.name == p.right; });
  return owned;
}

}  // namespace mortise::cli
