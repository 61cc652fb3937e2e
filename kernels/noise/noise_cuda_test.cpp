// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include "kernels/noise/noise_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/noise/element.h"
#include "kernels/noise/noise.h"
#include "mortise/dtype.h"
#include "mortise/half.h"

using namespace mortise::kernels;

namespace {

constexpr double kEta = 0.3, kGamma = 0.55;

// What lies on the device, and the host's number of it.
struct Step {
  double scale = 1024;
  int64_t steps = 7;
  NoiseOfStep device() const { return {&scale, &steps, kEta, kGamma}; }
  double deviation() const { return noise_deviation(kEta, kGamma, scale, steps); }
};

mortise_philox place_of(uint32_t site, int64_t steps) { return {{1, 2}, site, static_cast<uint32_t>(steps), 0}; }

// A gradient, `offset` elements behind an aligned address; its elements are [first, …) of what the place numbers.
template <class T>
struct Gradient {
  std::vector<T> x;
  size_t offset;
  int64_t first;
  uint32_t site;
  Gradient(size_t n, size_t off, int64_t begin, uint32_t place) : x(n + off), offset(off), first(begin), site(place) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double number = 500 * std::sin(static_cast<double>(i) * 0.7 + site);
      if constexpr (std::is_same_v<T, uint16_t>) x[i] = mortise_bf16_from_double(number);
      else x[i] = static_cast<T>(number);
    }
  }
  int64_t length() const { return static_cast<int64_t>(x.size() - offset); }
  NoiseSlice slice(uint32_t dtype) {
    return {x.data() + offset, length(), first, place_of(site, 0xDEAD), dtype};  // whose step nobody reads
  }
  void add_on_host(uint32_t dtype, const Step& step) {
    add_noise(place_of(site, step.steps), step.deviation(), dtype, x.data() + offset, first, 0, length());
  }
};

// Lengths around the four elements of a Philox block and a piece of a block of threads, aligned and not, also from the
// middle of what is numbered, and beyond 2^32 Philox blocks. All in one launch.
template <class T>
void expect_same_bits(uint32_t dtype) {
  constexpr int64_t kWrap = int64_t{4} << 32;
  const Step step;
  std::vector<Gradient<T>> there;
  uint32_t site = 0;
  for (const size_t n : {0, 1, 3, 4, 5, 1023, 8191, 8192, 8193, 20001})
    for (const size_t offset : {0, 1, 2, 4})
      for (const int64_t first : {int64_t{0}, int64_t{390}, int64_t{8192}, kWrap - 6})
        there.emplace_back(n, offset, first, site++);
  std::vector<Gradient<T>> here = there;
  const std::vector<Gradient<T>> before = there;
  std::vector<NoiseSlice> slices;
  for (auto& g : there) slices.push_back(g.slice(dtype));
  ASSERT_EQ(add_noise_cuda(slices.data(), static_cast<int64_t>(slices.size()), step.device(), nullptr), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    here[i].add_on_host(dtype, step);
    EXPECT_TRUE(here[i].x.empty() ||
                std::memcmp(here[i].x.data(), there[i].x.data(), here[i].x.size() * sizeof(T)) == 0)
        << here[i].length() << " elements behind " << here[i].offset << " from " << here[i].first;
    EXPECT_EQ(there[i].x == before[i].x, there[i].length() == 0) << i;
  }
}

TEST(NoiseCuda, HasTheBitsOfTheHostsProcessorInF32) { expect_same_bits<float>(MORTISE_F32); }
TEST(NoiseCuda, HasTheBitsOfTheHostsProcessorInF64) { expect_same_bits<double>(MORTISE_F64); }
TEST(NoiseCuda, HasTheBitsOfTheHostsProcessorInBF16) { expect_same_bits<uint16_t>(MORTISE_BF16); }
TEST(NoiseCuda, HasTheBitsOfTheHostsProcessorInF16) { expect_same_bits<uint16_t>(MORTISE_F16); }

// The same arguments, of which the device's numbers have become others: what a recording is.
TEST(NoiseCuda, HasTheBitsAndTheDeviationOfTheStepInWhichItIsPlayed) {
  Step step;
  Gradient<float> there(1001, 0, 0, 3);
  const Gradient<float> zero = [&] {
    auto g = there;
    g.x.assign(g.x.size(), 0);
    return g;
  }();
  there = zero;
  const NoiseSlice slice = there.slice(MORTISE_F32);
  const NoiseOfStep noise = step.device();
  for (const auto& [steps, scale] : {std::pair(int64_t{0}, 1.0), {1, 1.0}, {1, 0.5}, {90'000, 65536.0}}) {
    step.steps = steps, step.scale = scale;
    std::ranges::fill(there.x, 0);
    ASSERT_EQ(add_noise_cuda(&slice, 1, noise, nullptr), nullptr);
    Gradient<float> here = zero;
    here.add_on_host(MORTISE_F32, step);
    EXPECT_EQ(there.x, here.x) << steps << ", " << scale;
  }
}

TEST(NoiseCuda, TakesMoreGradientsThanOneTableHolds) {
  const Step step;
  std::vector<Gradient<float>> there;
  for (uint32_t i = 0; i < 1300; ++i) there.emplace_back(i % 5, 0, 0, i);  // empty ones, too
  std::vector<Gradient<float>> here = there;
  std::vector<NoiseSlice> slices;
  for (auto& g : there) slices.push_back(g.slice(MORTISE_F32));
  ASSERT_EQ(add_noise_cuda(slices.data(), 1300, step.device(), nullptr), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    here[i].add_on_host(MORTISE_F32, step);
    ASSERT_EQ(here[i].x, there[i].x) << i;
  }
}

}  // namespace
