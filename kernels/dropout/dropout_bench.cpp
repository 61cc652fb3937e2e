// kernel_dropout_bench: 786,432 elements (8 × 256 × 384), the best of forty-one, in milliseconds, on one thread and on
// two.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "kernels/dropout/dropout.h"

int main() {
  constexpr int64_t n = 786'432;
  const std::vector<float> x(n, 1.f), residual(n, 0.5f);
  std::vector<float> y(n);
  const mortise_philox place = {{1, 2}, 3, 4, 5};
  for (const bool add : {false, true})
    for (const int threads : {1, 2}) {
      double best_ms = 1e9;
      for (int round = 0; round < 41; ++round) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> team;
        const auto piece = [&](int t) {
          mortise::kernels::dropout(place, 0.1, MORTISE_F32, x.data(), add ? residual.data() : nullptr, MORTISE_F32,
                                    y.data(), n * t / threads, n * (t + 1) / threads);
        };
        for (int t = 1; t < threads; ++t) team.emplace_back(piece, t);
        piece(0);
        for (auto& one : team) one.join();
        best_ms = std::min(best_ms,
                           std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      }
      std::printf("dropout%-11s %d thread%s %6.3f ms\n", add ? " + residual" : "", threads, threads > 1 ? "s" : " ",
                  best_ms);
    }
}
