// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include "kernels/dropout/dropout_cuda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/dropout/dropout.h"
#include "mortise/half.h"

namespace mortise::kernels {
namespace {

constexpr mortise_philox kPlace = {{0x01234567u, 0x89ABCDEFu}, 11, 1200, 3};

// What the device is given: the step lies in its memory, and the place has another one.
DevicePlace on_device(const int64_t& step) {
  DevicePlace p = {kPlace, &step};
  p.place.step = 0xDEADu;
  return p;
}
mortise_philox on_host(int64_t step) {
  mortise_philox p = kPlace;
  p.step = static_cast<uint32_t>(step);
  return p;
}

// The bits of a BF16 are its type here.
template <class T>
std::vector<T> numbers(size_t n, double shift) {
  std::vector<T> x(n);
  for (size_t i = 0; i < n; ++i) {
    const double number = std::sin(static_cast<double>(i) * 0.7 + shift) * 3;
    if constexpr (std::is_same_v<T, uint16_t>) x[i] = mortise_bf16_from_double(number);
    else x[i] = static_cast<T>(number);
  }
  return x;
}
template <class T>
constexpr uint32_t kDtype = sizeof(T) == 8   ? MORTISE_F64
                            : sizeof(T) == 4 ? MORTISE_F32
                                             : MORTISE_BF16;

// Ranges around the eight elements of a block and the 2,048 of a block of threads; the arrays begin `offset` elements
// behind an aligned address.
template <class X, class Y>
void expect_same_bits() {
  constexpr size_t kAll = 4400;
  const int64_t step = 1200;
  for (const bool add : {false, true})
    for (const size_t offset : {0, 1, 3})
      for (const int64_t begin : {0, 1, 7, 8, 13, 2047, 2048})
        for (const int64_t end : {2048, 2049, 2055, 2056, 4097, 4399}) {
          const auto x = numbers<X>(kAll + offset, 0);
          const auto residual = numbers<Y>(kAll + offset, 1);
          const auto before = numbers<Y>(kAll + offset, 2);
          auto here = before, there = before;
          const void* const added = add ? &residual[offset] : nullptr;
          ASSERT_TRUE(dropout(on_host(step), 0.3, kDtype<X>, &x[offset], added, kDtype<Y>, &here[offset], begin, end));
          ASSERT_EQ(dropout_cuda(on_device(step), 0.3, kDtype<X>, &x[offset], added, kDtype<Y>, &there[offset], begin,
                                 end, nullptr),
                    nullptr);
          ASSERT_EQ(std::memcmp(here.data(), there.data(), here.size() * sizeof(Y)), 0)
              << "[" << begin << ", " << end << ") behind " << offset << (add ? ", with a residual" : "");
          ASSERT_EQ(here == before, begin == end);
        }
}

TEST(DropoutCuda, HasTheBitsOfTheHostsProcessorInF32) { expect_same_bits<float, float>(); }
TEST(DropoutCuda, HasTheBitsOfTheHostsProcessorInF64) { expect_same_bits<double, double>(); }
TEST(DropoutCuda, HasTheBitsOfTheHostsProcessorInBF16) { expect_same_bits<uint16_t, uint16_t>(); }
TEST(DropoutCuda, HasTheBitsOfTheHostsProcessorFromBF16ToF32) { expect_same_bits<uint16_t, float>(); }
TEST(DropoutCuda, HasTheBitsOfTheHostsProcessorFromF32ToBF16) { expect_same_bits<float, uint16_t>(); }

// One tensor aligned and another not: one way to read serves both.
TEST(DropoutCuda, TakesArraysOfWhichOneAloneIsUnaligned) {
  const int64_t step = 5;
  const auto x = numbers<float>(1001, 0), residual = numbers<float>(1001, 1);
  for (const int odd : {0, 1, 2}) {
    std::vector<float> here(1001), there(1001);
    const float *from = &x[odd == 0], *added = &residual[odd == 1];
    const auto to = static_cast<size_t>(odd == 2);
    dropout(on_host(step), 0.5, MORTISE_F32, from, added, MORTISE_F32, &here[to], 0, 1000);
    dropout_cuda(on_device(step), 0.5, MORTISE_F32, from, added, MORTISE_F32, &there[to], 0, 1000, nullptr);
    EXPECT_EQ(here, there) << odd;
  }
}

// The same arguments, of which the device's number of the step has become another: what a recording is.
TEST(DropoutCuda, DrawsTheBitsOfTheStepInWhichItIsPlayed) {
  constexpr int64_t n = 1003;
  const auto x = numbers<float>(n, 0);
  std::vector<float> first(n), here(n), there(n);
  int64_t step = 0;
  const DevicePlace place = on_device(step);
  const auto play = [&] {
    ASSERT_EQ(dropout_cuda(place, 0.5, MORTISE_F32, x.data(), nullptr, MORTISE_F32, there.data(), 0, n, nullptr),
              nullptr);
  };
  play();
  first = there;
  for (const int64_t later : {int64_t{1}, int64_t{2}, int64_t{77'777}, int64_t{1} << 32 | 5}) {
    step = later;
    play();
    dropout(on_host(step), 0.5, MORTISE_F32, x.data(), nullptr, MORTISE_F32, here.data(), 0, n);
    EXPECT_EQ(here, there) << step;
    EXPECT_NE(first, there) << step;
  }
}

// A piece around block 2^32 of a tensor of which no more is there.
TEST(DropoutCuda, HasTheBitsOfTheHostsProcessorBeyond2To32Blocks) {
  constexpr int64_t kWrap = int64_t{8} << 32, kAround = 1024, kBegin = kWrap - kAround;
  const int64_t step = 9;
  const std::vector<float> x(2 * kAround, 1.f);
  std::vector<float> here(2 * kAround), there(2 * kAround);
  const auto element_0 = [](const float* of_first) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(of_first) -
                                   static_cast<uintptr_t>(kBegin) * sizeof(float));
  };
  for (const int64_t odd : {0, 5}) {
    const int64_t begin = kBegin + odd, end = kWrap + kAround - odd;
    dropout(on_host(step), 0.5, MORTISE_F32, element_0(x.data()), nullptr, MORTISE_F32, element_0(here.data()), begin,
            end);
    dropout_cuda(on_device(step), 0.5, MORTISE_F32, element_0(x.data()), nullptr, MORTISE_F32, element_0(there.data()),
                 begin, end, nullptr);
    EXPECT_EQ(here, there);
  }
  EXPECT_NE(std::vector<float>(there.begin(), there.begin() + kAround),
            std::vector<float>(there.begin() + kAround, there.end()));
}

TEST(DropoutCuda, WorksInPlace) {
  constexpr int64_t n = 2777;
  const int64_t step = 3;
  const auto x = numbers<float>(n, 0);
  std::vector<float> here(n), there = x;
  dropout(on_host(step), 0.3, MORTISE_F32, x.data(), x.data(), MORTISE_F32, here.data(), 0, n);
  dropout_cuda(on_device(step), 0.3, MORTISE_F32, there.data(), there.data(), MORTISE_F32, there.data(), 0, n, nullptr);
  EXPECT_EQ(here, there);
}

TEST(DropoutCuda, DropsEverythingAtOneAndNothingAtZero) {
  const int64_t step = 3;
  const auto x = numbers<float>(300, 0);
  std::vector<float> y(300, -7.f);
  dropout_cuda(on_device(step), 1, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 300, nullptr);
  for (const float f : y) ASSERT_EQ(f, 0.f);
  dropout_cuda(on_device(step), 0, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 300, nullptr);
  EXPECT_EQ(x, y);
}

TEST(DropoutCuda, LetsNothingThatIsNotANumberVanish) {
  const int64_t step = 3;
  const std::vector<float> x(64, std::nanf(""));
  std::vector<float> y(64);
  dropout_cuda(on_device(step), 0.5, MORTISE_F32, x.data(), nullptr, MORTISE_F32, y.data(), 0, 64, nullptr);
  for (const float f : y) EXPECT_TRUE(std::isnan(f));
}

TEST(DropoutCuda, TakesATensorOfNoElements) {
  const int64_t step = 3;
  EXPECT_EQ(dropout_cuda(on_device(step), 0.5, MORTISE_F32, nullptr, nullptr, MORTISE_F32, nullptr, 0, 0, nullptr),
            nullptr);
}

TEST(DropoutCuda, SaysThatItDoesNotKnowADtype) {
  const int64_t step = 3;
  uint16_t half[8] = {};
  const char* const wrong =
      dropout_cuda(on_device(step), 0.1, MORTISE_F16, half, nullptr, MORTISE_F16, half, 0, 8, nullptr);
  EXPECT_STREQ(wrong, "dropout has no kernel for these element types");
}

}  // namespace
}  // namespace mortise::kernels
