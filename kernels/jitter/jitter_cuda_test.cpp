// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include "kernels/jitter/jitter_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/jitter/jitter.h"

using namespace mortise::kernels;

namespace {

constexpr mortise_philox kPlace = {{1, 2}, 3, 0xDEAD, 5};  // whose step nobody reads

std::vector<float> of_host(size_t n, double amount, int64_t step) {
  mortise_philox place = kPlace;
  place.step = static_cast<uint32_t>(step);
  std::vector<float> x(n);
  jitter(place, amount, x.data(), 0, static_cast<int64_t>(n));
  return x;
}

// Lengths around the eight elements of a Philox block and the 2,048 of a block of threads, aligned and not; what lies
// around them stays.
TEST(JitterCuda, HasTheBitsOfTheHostsProcessor) {
  const int64_t step = 7;
  for (const size_t n : {0, 1, 7, 8, 9, 2047, 2048, 2049, 5000})
    for (const size_t offset : {0, 1, 4})
      for (const double amount : {0.01, 0.5}) {
        std::vector<float> x(n + offset + 8, -7.f), expected = x;
        ASSERT_EQ(jitter_cuda({kPlace, &step}, amount, &x[offset], static_cast<int64_t>(n), nullptr), nullptr);
        std::ranges::copy(of_host(n, amount, step), expected.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_EQ(x, expected) << n << " behind " << offset;
      }
}

// The same arguments, of which the device's number of the step has become another: what a recording is.
TEST(JitterCuda, DrawsTheBitsOfTheStepInWhichItIsPlayed) {
  int64_t step = 0;
  const DevicePlace place = {kPlace, &step};
  std::vector<float> x(100);
  for (step = 0; step < 3; ++step) {
    ASSERT_EQ(jitter_cuda(place, 0.1, x.data(), 100, nullptr), nullptr);
    EXPECT_EQ(x, of_host(100, 0.1, step));
    EXPECT_NE(x, of_host(100, 0.1, step + 1));
  }
}

}  // namespace
