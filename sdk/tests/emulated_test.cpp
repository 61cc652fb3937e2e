// The device that tests have in the place of a GPU.
#include <gtest/gtest.h>

#include <numeric>

#include "mortise/cuda/launch.hpp"

namespace {

constexpr unsigned kThreads = 96;

__global__ void sum_by_warps(const float* x, int n, float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float mine = i < n ? x[i] : 0;
  for (unsigned by = 16; by > 0; by /= 2) mine += __shfl_down_sync(~0u, mine, by);
  if (threadIdx.x % 32 == 0) atomicAdd(out, mine);
}

__global__ void turn_around(int* x) {
  __shared__ int there[kThreads];
  there[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = there[blockDim.x - 1 - threadIdx.x];
}

__global__ void next_of_warp(int* x) {
  const int mine = x[(threadIdx.x + 1) % 32];
  __syncwarp();
  x[threadIdx.x] = mine;
}

__global__ void half_come(int*) {
  if (threadIdx.x % 2) __syncthreads();
}

TEST(Emulated, AddsUpAWarpAndAllBlocks) {
  std::vector<float> x(300);
  std::iota(x.begin(), x.end(), 1.0f);
  float sum = 0;
  MORTISE_LAUNCH(sum_by_warps, 4, kThreads, nullptr, x.data(), 300, &sum);
  EXPECT_EQ(mortise::launch_error(), nullptr);
  EXPECT_EQ(sum, 300 * 301 / 2);
}

TEST(Emulated, WaitsAtABarrier) {
  std::vector<int> x(kThreads), turned(kThreads);
  std::iota(x.begin(), x.end(), 0);
  turned.assign(x.rbegin(), x.rend());
  MORTISE_LAUNCH(turn_around, 1, kThreads, nullptr, x.data());
  EXPECT_EQ(x, turned);
}

TEST(Emulated, WaitsForAWarp) {
  std::vector<int> x(32);
  std::iota(x.begin(), x.end(), 0);
  MORTISE_LAUNCH(next_of_warp, 1, 32, nullptr, x.data());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(x[static_cast<size_t>(i)], (i + 1) % 32);
}

TEST(Emulated, EndsWhereABarrierIsNotReachedByAll) {
  EXPECT_DEATH(MORTISE_LAUNCH(half_come, 1, 32, nullptr, nullptr), "a barrier that the others do not come to");
}

}  // namespace
