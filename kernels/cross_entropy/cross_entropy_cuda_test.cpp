// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include "kernels/cross_entropy/cross_entropy_cuda.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cross_entropy/test_rows.h"

namespace mortise::kernels {
namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void expect_same_bits(TestRows<T> here, bool in_place = false) {
  TestRows<T> there = here;
  const Wide<T> scale = Wide<T>(0.37);
  T* const gradient = (in_place ? there.logits : there.gradient).data() + there.offset;
  ASSERT_EQ(cross_entropy_cuda(there.arrays(), there.loss.data(), there.statistics.data(), nullptr), nullptr);
  ASSERT_EQ(cross_entropy_gradient_cuda(there.arrays(), there.statistics.data(), &scale, gradient, nullptr), nullptr);
  here.run(scale);
  EXPECT_TRUE(same_bits(here.loss, there.loss));
  EXPECT_TRUE(same_bits(here.statistics, there.statistics));
  if (!in_place) {
    EXPECT_TRUE(same_bits(here.gradient, there.gradient));
    EXPECT_TRUE(same_bits(here.logits, there.logits));
    return;
  }
  for (size_t i = here.offset; i < here.logits.size(); ++i)
    ASSERT_EQ(std::memcmp(&here.gradient[i], &there.logits[i], sizeof(T)), 0) << i;
}

template <class T>
struct CrossEntropyCuda : testing::Test {};
using Types = testing::Types<float, double, BF16, F16>;
TYPED_TEST_SUITE(CrossEntropyCuda, Types);

// Widths around a thread's logits, all threads', and those that are under way; rows that begin at sixteen bytes and
// rows that do not.
TYPED_TEST(CrossEntropyCuda, HasTheBitsOfTheHostsProcessor) {
  for (const int64_t columns : {1, 7, 8, 9, 2047, 2048, 2056, 8192, 8203, 9000})
    for (const size_t offset : {0, 1, 5})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(testing::Message() << columns << " columns behind " << offset << (in_place ? ", in place" : ""));
        expect_same_bits(TestRows<TypeParam>(3, columns, columns, 0, 3, offset), in_place);
      }
}

TYPED_TEST(CrossEntropyCuda, SmoothsAndLeavesPaddingOut) {
  for (const int64_t valid : {1, 2049, 2059}) {
    expect_same_bits(TestRows<TypeParam>(3, 2064, valid, 0.1, 3));
    expect_same_bits(TestRows<TypeParam>(3, 2064, valid, 0, 3), true);
  }
}

TYPED_TEST(CrossEntropyCuda, TakesLossesOfHundreds) {
  expect_same_bits(TestRows<TypeParam>(6, 2500, 2500, 0, 200));
  expect_same_bits(TestRows<TypeParam>(6, 2500, 2500, 0.1, 200));
}

// A NaN has many bits, of which the two compilers make what they like.
TYPED_TEST(CrossEntropyCuda, ALabelThatIsNoClassMakesItsRowNoNumber) {
  TestRows<TypeParam> t(4, 24, 20, 0, 3);
  t.labels = {20, -1, 19, -100};
  const Wide<TypeParam> scale = 1;
  ASSERT_EQ(cross_entropy_cuda(t.arrays(), t.loss.data(), t.statistics.data(), nullptr), nullptr);
  ASSERT_EQ(cross_entropy_gradient_cuda(t.arrays(), t.statistics.data(), &scale, t.gradient.data(), nullptr), nullptr);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(std::isnan(t.loss[static_cast<size_t>(row)]), row < 2) << row;
    EXPECT_EQ(std::isnan(t.gradient_at(row, 0)), row < 2) << row;
    EXPECT_EQ(t.gradient_at(row, 23), 0) << row;
  }
}

TEST(CrossEntropyCuda, OfNoRowsIsNothing) {
  EXPECT_EQ(cross_entropy_cuda({MORTISE_F32, nullptr, nullptr, 0, 8, 8, 0}, nullptr, nullptr, nullptr), nullptr);
}

}  // namespace
}  // namespace mortise::kernels
