// kernel_cross_entropy_bench [rows = 256] [columns = 50304] [threads = 1]: the losses and the gradient against passes
// that only read and write, GB/s and share of the floor.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/best_seconds.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/element.h"

using namespace mortise::kernels;

namespace {

template <class T>
void measure(const char* name, uint32_t dtype, int64_t rows, int64_t columns, int threads) {
  std::vector<T> logits(static_cast<size_t>(rows * columns)), gradient(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<T>(static_cast<float>(i * 37 % 101) * 0.1f);
  std::vector<int64_t> labels(static_cast<size_t>(rows), 3);
  std::vector<Wide<T>> loss(labels.size()), statistics(2 * labels.size());
  const Wide<T> scale = 1;
  const CrossEntropyRows r = {dtype, logits.data(), labels.data(), rows, columns, columns, 0};
  const double forward = best_seconds(
      5, rows, threads, [&](int64_t b, int64_t e) { cross_entropy(r, loss.data(), statistics.data(), b, e); });
  const double backward = best_seconds(5, rows, threads, [&](int64_t b, int64_t e) {
    cross_entropy_gradient(r, statistics.data(), &scale, gradient.data(), b, e);
  });
  const auto n = static_cast<double>(logits.size()), bytes = static_cast<double>(sizeof(T));
  std::printf("%-5s losses %7.2f ms  %5.1f GB/s   gradient %7.2f ms  %5.1f GB/s\n", name, forward * 1e3,
              bytes * n / forward * 1e-9, backward * 1e3, 2 * bytes * n / backward * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 256, columns = argc > 2 ? std::atoll(argv[2]) : 50304;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  std::vector<float> from(static_cast<size_t>(rows * columns), 1.f), to(from.size());
  const double copy = best_seconds(5, rows * columns, threads, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) to[static_cast<size_t>(i)] = from[static_cast<size_t>(i)] * 0.5f;
  });
  std::printf("memory alone, read and write: %5.1f GB/s\n", 8 * static_cast<double>(from.size()) / copy * 1e-9);
  measure<float>("fp32", MORTISE_F32, rows, columns, threads);
  measure<double>("fp64", MORTISE_F64, rows, columns, threads);
  measure<BF16>("bf16", MORTISE_BF16, rows, columns, threads);
  measure<F16>("fp16", MORTISE_F16, rows, columns, threads);
}
