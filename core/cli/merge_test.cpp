// Parameters that were added to a model, merged: what `mortise export` writes.
#include "core/cli/merge.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/diagnostic.hpp"

namespace mortise::cli {
namespace {

using huggingface::Product;

struct Merge : testing::Test {
  Merge() {
    file.entries = {matrix("a", right, {1, 3}), matrix("w", into, {2, 3}), matrix("b", left, {2, 1}),
                    matrix("other", into, {6})};
  }
  template <size_t N>
  static TensorView matrix(const std::string& name, const float (&numbers)[N], std::vector<int64_t> sizes) {
    return {name, "F32", std::move(sizes), numbers, sizeof numbers};
  }
  std::vector<float> merged(const Product& p) {
    owned = merge_products(file, {p});
    const TensorView& t = *std::ranges::find(file.entries, p.into, &TensorView::name);
    std::vector<float> numbers(t.bytes / sizeof(float));
    std::memcpy(numbers.data(), t.data, t.bytes);
    return numbers;
  }
  std::string refused(const Product& p) {
    try {
      merge_products(file, {p});
    } catch (const Failure& f) {
      return f.diagnostic.code + ": " + f.diagnostic.message;
    }
    return "";
  }
  float into[6] = {1, 2, 3, 4, 5, 6}, left[2] = {10, 20}, right[3] = {1, 0, -1};
  TensorFile file;
  std::deque<std::vector<char>> owned;
};

TEST_F(Merge, AddsTheProductAndTakesItsFactorsOut) {
  EXPECT_EQ(merged({"w", "b", "a", 0.5, false}), (std::vector<float>{6, 2, -2, 14, 5, -4}));
  ASSERT_EQ(file.entries.size(), 2u);
  EXPECT_EQ(file.entries[0].name, "w") << "in their order";
  EXPECT_EQ(file.entries[1].data, into) << "the rest as it was";
}

TEST_F(Merge, TurnsTheProductRoundForAMatrixThatStandsTheOtherWay) {
  file.entries[1].sizes = {3, 2};
  EXPECT_EQ(merged({"w", "b", "a", 0.5, true}), (std::vector<float>{6, 12, 3, 4, 0, -4}));
}

TEST_F(Merge, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refused({"w", "b", "a", 0.5, true}), "not_exported: `b` cannot be merged into `w`: they have other shapes");
  EXPECT_EQ(refused({"w", "c", "a", 0.5, false}), "not_exported: `c` cannot be merged into `w`: the file has no `c`");
  EXPECT_EQ(refused({"other", "b", "a", 0.5, false}),
            "not_exported: `b` cannot be merged into `other`: `other` is no matrix of floating-point numbers");
}

}  // namespace
}  // namespace mortise::cli
