// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/adamw_anyprecision/adamw_anyprecision.h"
#include "kernels/adamw_anyprecision/adamw_anyprecision_cuda.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

constexpr std::array<double, 2> kBetas = {0.9, 0.95};
constexpr double kEps = 1e-8;
constexpr uint32_t kNone = MORTISE_NO_DTYPE, kF32 = MORTISE_F32, kBF16 = MORTISE_BF16;

// Two groups, and the numbers of step 5.
struct LedgerNumbers {
  double multiplier = 0.3, verdict = 1, lr[2] = {1e-2, 3e-3}, weight_decay[2] = {0.1, 0.0};
  int64_t applied = 4;
  DeviceLedger device() const { return {&multiplier, &verdict, lr, weight_decay, &applied}; }
  AnyPrecisionStep step(int group) const {
    const auto t = static_cast<double>(applied + 1);
    return {lr[group],
            weight_decay[group],
            kBetas[0],
            kBetas[1],
            kEps,
            1 - std::pow(kBetas[0], t),
            1 - std::pow(kBetas[1], t),
            multiplier};
  }
};

// Random elements of a dtype, `offset` more in front of them that nobody touches.
struct Array {
  std::vector<uint8_t> bytes;
  uint32_t dtype = kNone;
  size_t offset = 0;
  Array(size_t n, size_t off, uint32_t of, std::mt19937& bits, bool squares = false)
      : bytes((n + off) * mortise_dtype_of(of)->bytes), dtype(of), offset(off) {
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < n + off && of != kNone; ++i) {
      const double x = normal(bits);
      mortise_element_set(of, &bytes[i * mortise_dtype_of(of)->bytes], squares ? x * x : x);
    }
  }
  // Null where there is none, as without Kahan summation.
  void* data() { return dtype == kNone ? nullptr : bytes.data() + offset * mortise_dtype_of(dtype)->bytes; }
  AnyPrecisionArray array() { return {data(), dtype}; }
  double operator[](size_t i) const {
    return mortise_element_get(dtype, &bytes[(offset + i) * mortise_dtype_of(dtype)->bytes]);
  }
  bool operator==(const Array&) const = default;
};

// A parameter and what belongs to it, `offset` elements behind an aligned address.
struct Tensor {
  std::mt19937 bits;
  int64_t length;
  Array p, m, v, c, g, copy;
  Tensor(size_t n, size_t offset, const AnyPrecisionKept& kept, uint32_t grad, uint32_t copy_dtype, unsigned seed)
      : bits(seed), length(static_cast<int64_t>(n)), p(n, offset, kept.p, bits), m(n, offset, kept.m, bits),
        v(n, offset, kept.v, bits, true), c(n, offset, kept.compensation, bits), g(n, offset, grad, bits),
        copy(n, offset, copy_dtype, bits) {}
  AnyPrecisionSlice slice(int group) {
    return {p.data(),
            m.data(),
            v.data(),
            c.data(),
            g.data(),
            copy.data(),
            length,
            group,
            static_cast<uint16_t>(g.dtype),
            static_cast<uint16_t>(copy.dtype)};
  }
  void update_on_host(const AnyPrecisionStep& step) {
    anyprecision_update(
        step, {p.array(), m.array(), v.array(), c.array(), g.data(), g.dtype, static_cast<uint16_t*>(copy.data())}, 0,
        length);
  }
  bool operator==(const Tensor& o) const { return p == o.p && m == o.m && v == o.v && c == o.c && copy == o.copy; }
};

const char* update(const std::vector<AnyPrecisionSlice>& slices, const AnyPrecisionKept& kept,
                   const LedgerNumbers& ledger) {
  return anyprecision_cuda(slices.data(), static_cast<int64_t>(slices.size()), kept, ledger.device(), kBetas, kEps,
                           nullptr);
}

class AnyPrecisionCuda : public testing::TestWithParam<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> {
 protected:
  AnyPrecisionKept kept() const {
    const auto [p, m, v, c] = GetParam();
    return {p, m, v, c};
  }
};

// Lengths around a piece of a block, aligned and not, in two groups, with gradients of every dtype.
TEST_P(AnyPrecisionCuda, HasTheBitsOfTheHostsProcessor) {
  const LedgerNumbers ledger;
  constexpr uint32_t kGradients[] = {MORTISE_F32, MORTISE_BF16, MORTISE_F16, MORTISE_F64};
  std::vector<Tensor> there;
  unsigned seed = 0;
  for (const size_t n : {1, 3, 255, 1027, 8191, 8192, 8193, 20000})
    for (const size_t offset : {0, 1, 4}) {
      there.emplace_back(n, offset, kept(), kGradients[seed % 4], seed % 5 == 0 ? kBF16 : kNone, seed + 1);
      ++seed;
    }
  std::vector<Tensor> here = there;
  std::vector<AnyPrecisionSlice> slices;
  for (size_t i = 0; i < there.size(); ++i) slices.push_back(there[i].slice(i % 5 < 2));
  ASSERT_EQ(update(slices, kept(), ledger), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    here[i].update_on_host(ledger.step(i % 5 < 2));
    EXPECT_TRUE(here[i] == there[i]) << "tensor " << i << " of " << here[i].length << " elements, gradients in "
                                     << mortise_dtype_of(here[i].g.dtype)->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixtures, AnyPrecisionCuda,
                         testing::Combine(testing::Values(kF32, kBF16), testing::Values(kF32, kBF16),
                                          testing::Values(kF32, kBF16), testing::Values(kNone, kF32, kBF16)));

constexpr AnyPrecisionKept kDefaults = {kF32, kF32, kBF16, kNone}, kKahan = {kBF16, kBF16, kBF16, kBF16};

TEST(AnyPrecisionCudaKernel, WritesACopyInFp16) {
  for (const size_t offset : {0, 1}) {
    Tensor t(1001, offset, kDefaults, kF32, MORTISE_F16, 1);
    ASSERT_EQ(update({t.slice(0)}, kDefaults, {}), nullptr);
    for (size_t i = 0; i < 1001; ++i)
      ASSERT_EQ(t.copy[i], static_cast<double>(mortise_f16_to_float(mortise_f16_from_double(t.p[i])))) << i;
  }
}

TEST(AnyPrecisionCudaKernel, ChangesNothingIfTheStepIsSkipped) {
  LedgerNumbers ledger;
  ledger.verdict = 0;
  Tensor t(5000, 0, kKahan, kBF16, kBF16, 1);
  const Tensor before = t;
  ASSERT_EQ(update({t.slice(0)}, kKahan, ledger), nullptr);
  EXPECT_TRUE(t == before);
}

TEST(AnyPrecisionCudaKernel, TakesMoreTensorsThanOneTableHolds) {
  const LedgerNumbers ledger;
  std::vector<Tensor> there;
  for (unsigned i = 0; i < 1300; ++i) there.emplace_back(i % 5, 0, kKahan, kBF16, kNone, i + 1);  // empty ones, too
  std::vector<Tensor> here = there;
  std::vector<AnyPrecisionSlice> slices;
  for (Tensor& t : there) slices.push_back(t.slice(0));
  ASSERT_EQ(update(slices, kKahan, ledger), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    if (here[i].length > 0) here[i].update_on_host(ledger.step(0));
    ASSERT_TRUE(here[i] == there[i]) << i;
  }
}

TEST(AnyPrecisionCudaKernel, KeepsANaN) {
  Tensor t(5, 0, kKahan, kF32, kBF16, 1);
  const float nan = std::nanf("");
  std::memcpy(t.g.bytes.data() + 3 * sizeof nan, &nan, sizeof nan);
  ASSERT_EQ(update({t.slice(0)}, kKahan, {}), nullptr);
  for (size_t i = 0; i < 5; ++i)
    for (const Array* a : {&t.p, &t.m, &t.v, &t.c, &t.copy}) EXPECT_EQ(std::isnan((*a)[i]), i == 3) << i;
}

}  // namespace
}  // namespace mortise::kernels
