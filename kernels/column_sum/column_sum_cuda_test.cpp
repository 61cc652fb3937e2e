// Sums over rows against the same in double, on a device that the CPU stands in for.
#include "kernels/column_sum/column_sum_cuda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mortise/half.h"

namespace mortise::kernels {
namespace {

float number(int64_t i) { return static_cast<float>(std::sin(static_cast<double>(i) * 0.7)) * 3; }
// As T has it: a float, or sixteen bits.
template <uint32_t kDtype, class T>
T stored(float x) {
  if constexpr (kDtype == MORTISE_F32) return x;
  else return kDtype == MORTISE_BF16 ? mortise_bf16_from_float(x) : mortise_f16_from_float(x);
}
template <uint32_t kDtype, class T>
double read_back(T x) {
  if constexpr (kDtype == MORTISE_F32) return double{x};
  else return double{kDtype == MORTISE_BF16 ? mortise_bf16_to_float(x) : mortise_f16_to_float(x)};
}

// Rows around a turn of the teams, of which 128 are under way, and around stretches; columns around those of a thread
// and of a block; an odd address.
template <uint32_t kDtype, class T>
void expect_sums() {
  for (const int64_t rows : {0, 1, 31, 33, 129, 1025, 2300})
    for (const int64_t columns : {1, 7, 8, 33, 64, 72})
      for (const int64_t offset : {0, 1}) {
        std::vector<T> x(static_cast<size_t>(rows * columns + offset));
        for (size_t i = 0; i < x.size(); ++i) x[i] = stored<kDtype, T>(number(static_cast<int64_t>(i)));
        std::vector<float> scratch(static_cast<size_t>(column_sum_stretches(rows, columns) * columns), 1e9f);
        std::vector<float> sums(static_cast<size_t>(columns) + 1, -7);
        ASSERT_EQ(column_sum_cuda(kDtype, x.data() + offset, rows, columns, offset == 1, sums.data(), scratch.data(),
                                  nullptr),
                  nullptr);
        for (int64_t c = 0; c < columns; ++c) {
          double wanted = offset == 1 ? -7 : 0, size = 7;  // added to what was there
          for (int64_t r = 0; r < rows; ++r) {
            const double one = read_back<kDtype>(x[static_cast<size_t>(r * columns + c + offset)]);
            wanted += one;
            size += std::abs(one);
          }
          // At most ⌈rows / 32⌉ + 12 additions on the way of one number, each half a unit in the last place.
          const double bound = size * (static_cast<double>(rows) / 32 + 13) * 0x1p-24;
          ASSERT_NEAR(double{sums[static_cast<size_t>(c)]}, wanted, bound) << rows << " by " << columns;
        }
        ASSERT_EQ(sums.back(), -7) << "behind the end";
      }
}

TEST(ColumnSum, InF32) { expect_sums<MORTISE_F32, float>(); }
TEST(ColumnSum, InBF16) { expect_sums<MORTISE_BF16, uint16_t>(); }
TEST(ColumnSum, InF16) { expect_sums<MORTISE_F16, uint16_t>(); }

TEST(ColumnSum, RefusesATypeThatItHasNoKernelFor) {
  EXPECT_STREQ(column_sum_cuda(MORTISE_F64, nullptr, 1, 1, false, nullptr, nullptr, nullptr),
               "a sum over rows has no kernel for this element type");
}

}  // namespace
}  // namespace mortise::kernels
