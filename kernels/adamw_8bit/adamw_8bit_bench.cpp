// kernel_adamw_8bit_bench [millions of parameters = 32] [threads = 1]: beside AdamW in fp32, the best of seven.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw_8bit/adamw_8bit.h"
#include "kernels/best_seconds.h"

using namespace mortise::kernels;

int main(int argc, char** argv) {
  const int64_t n = (argc > 1 ? std::atoll(argv[1]) : 32) * 1'000'000 / kAdamW8BitBlock * kAdamW8BitBlock;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const auto size = static_cast<size_t>(n), blocks = size / kAdamW8BitBlock;
  std::vector<float> p(size, 0.5f), m(size), v(size), g(size), m_scale(blocks), v_scale(blocks);
  std::vector<uint8_t> m8(size, 127), v8(size);
  uint32_t seed = 1;  // the bell of four uniform numbers: indices of all decades
  for (float& x : g) {
    x = -2;
    for (int k = 0; k < 4; ++k) x += static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-24f;
  }
  const AdamWStep step{1e-3, 0.01, 0.9, 0.999, 1e-8, adamw_correction(0.9, 10), adamw_correction(0.999, 10), 1.0};
  const auto line = [&](const char* name, double bytes, auto body) {
    const double s = best_seconds(7, n / kAdamW8BitBlock, threads,
                                  [&](int64_t b, int64_t e) { body(b * kAdamW8BitBlock, e * kAdamW8BitBlock); });
    std::printf("%-26s %7.2f ms  %6.3f ns a parameter  %5.1f GB/s\n", name, s * 1e3, s * 1e9 / static_cast<double>(n),
                bytes * static_cast<double>(n) / s * 1e-9);
  };
  const AdamWArrays fp32{.p = p.data(), .m = m.data(), .v = v.data(), .g = g.data()};
  line("adamw, fp32", 28, [&](int64_t b, int64_t e) { adamw_update(step, fp32, b, e); });
  const AdamW8BitArrays a{.p = p.data(),
                          .m = m8.data(),
                          .v = v8.data(),
                          .m_scale = m_scale.data(),
                          .v_scale = v_scale.data(),
                          .g = g.data()};
  line("adamw_8bit", 16, [&](int64_t b, int64_t e) { adamw_8bit_update(step, a, b, e); });
  line("adamw_8bit, fp32 states", 28,
       [&](int64_t b, int64_t e) { adamw_32bit_update(step, a, {m.data(), v.data()}, b, e); });
}
