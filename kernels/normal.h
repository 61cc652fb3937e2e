// Normal numbers for tests.
#pragma once
#include <random>
#include <vector>

namespace mortise::kernels {

inline std::vector<float> normal(size_t n, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> number;
  std::vector<float> x(n);
  for (float& one : x) one = number(bits);
  return x;
}

}  // namespace mortise::kernels
