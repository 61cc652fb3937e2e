// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_cuda.h"
#include "mortise/half.h"

namespace mortise::kernels {
namespace {

constexpr std::array<double, 2> kBetas = {0.9, 0.999};
constexpr double kEps = 1e-8;

// Two groups, and the numbers of step 5.
struct LedgerNumbers {
  double multiplier = 0.5, verdict = 1, lr[2] = {1e-2, 3e-3}, weight_decay[2] = {0.1, 0.0};
  int64_t applied = 4;
  DeviceLedger device() const { return {&multiplier, &verdict, lr, weight_decay, &applied}; }
  AdamWStep step(int group, const std::array<double, 2>& betas) const {
    return adamw_step(lr[group], weight_decay[group], betas, kEps, applied + 1, multiplier);
  }
};

// A tensor and what belongs to it, `offset` elements behind an aligned address.
template <class T, class G>
struct Tensor {
  std::vector<T> p, m, v;
  std::vector<G> g;
  std::vector<uint16_t> copy;
  size_t offset;
  Tensor(size_t n, size_t off, unsigned seed)
      : p(n + off), m(n + off), v(n + off), g(n + off), copy(n + off, 7), offset(off) {
    std::mt19937 bits(seed);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = static_cast<T>(normal(bits));
      m[i] = static_cast<T>(0.1 * normal(bits));
      v[i] = static_cast<T>(std::abs(normal(bits)));
      if constexpr (sizeof(G) == 2) g[i] = mortise_bf16_from_double(normal(bits));
      else g[i] = static_cast<G>(normal(bits));
    }
  }
  int64_t length() const { return static_cast<int64_t>(p.size() - offset); }
  AdamWSlice slice(int group, uint32_t grad, uint32_t copy_dtype) {
    return {p.data() + offset,
            m.data() + offset,
            v.data() + offset,
            g.data() + offset,
            copy_dtype ? copy.data() + offset : nullptr,
            length(),
            group,
            static_cast<uint16_t>(grad),
            static_cast<uint16_t>(copy_dtype)};
  }
  void update_on_host(const AdamWStep& step, uint32_t master, uint32_t grad, bool copies) {
    adamw_update(step,
                 {master, grad, p.data() + offset, m.data() + offset, v.data() + offset, g.data() + offset,
                  copies ? copy.data() + offset : nullptr},
                 0, length());
  }
  bool operator==(const Tensor& o) const { return p == o.p && m == o.m && v == o.v && copy == o.copy; }
};

// Lengths around a piece of a block, aligned and not, in two groups.
template <class T, class G>
void expect_same_bits(uint32_t master, uint32_t grad, std::array<double, 2> betas = kBetas) {
  const LedgerNumbers ledger;
  std::vector<Tensor<T, G>> there;
  unsigned seed = 1;
  for (const size_t n : {1, 3, 255, 1027, 8191, 8192, 8193, 20000})
    for (const size_t offset : {0, 1, 4}) there.emplace_back(n, offset, seed++);
  std::vector<Tensor<T, G>> here = there;
  std::vector<AdamWSlice> slices;
  for (size_t i = 0; i < there.size(); ++i)
    slices.push_back(there[i].slice(static_cast<int>(i % 2), grad, i % 4 == 0 ? MORTISE_BF16 : 0));
  ASSERT_EQ(
      adamw_cuda(slices.data(), static_cast<int64_t>(slices.size()), master, ledger.device(), betas, kEps, nullptr),
      nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    here[i].update_on_host(ledger.step(static_cast<int>(i % 2), betas), master, grad, i % 4 == 0);
    EXPECT_TRUE(here[i] == there[i]) << "tensor " << i << " of " << here[i].length() << " elements";
  }
}

TEST(AdamWCuda, HasTheBitsOfTheHostsProcessor) {
  expect_same_bits<float, float>(MORTISE_F32, MORTISE_F32);
  expect_same_bits<float, uint16_t>(MORTISE_F32, MORTISE_BF16);
  expect_same_bits<double, double>(MORTISE_F64, MORTISE_F64);
  expect_same_bits<double, uint16_t>(MORTISE_F64, MORTISE_BF16);
  expect_same_bits<float, float>(MORTISE_F32, MORTISE_F32, {0.3, 0.99});  // the other end of torch's lerp
}

TEST(AdamWCuda, WritesACopyInFp16) {
  const LedgerNumbers ledger;
  Tensor<float, float> t(1001, 0, 1);
  const AdamWSlice slice = t.slice(0, MORTISE_F32, MORTISE_F16);
  ASSERT_EQ(adamw_cuda(&slice, 1, MORTISE_F32, ledger.device(), kBetas, kEps, nullptr), nullptr);
  for (size_t i = 0; i < t.p.size(); ++i) ASSERT_EQ(t.copy[i], mortise_f16_from_float(t.p[i])) << i;
}

TEST(AdamWCuda, ChangesNothingIfTheStepIsSkipped) {
  LedgerNumbers ledger;
  ledger.verdict = 0;
  Tensor<float, float> t(5000, 0, 1);
  const Tensor<float, float> before = t;
  const AdamWSlice slice = t.slice(0, MORTISE_F32, MORTISE_BF16);
  ASSERT_EQ(adamw_cuda(&slice, 1, MORTISE_F32, ledger.device(), kBetas, kEps, nullptr), nullptr);
  EXPECT_TRUE(t == before);
}

TEST(AdamWCuda, TakesMoreTensorsThanOneTableHolds) {
  const LedgerNumbers ledger;
  std::vector<Tensor<float, float>> there;
  for (unsigned i = 0; i < 1300; ++i) there.emplace_back(i % 5, 0, i + 1);  // empty ones, too
  std::vector<Tensor<float, float>> here = there;
  std::vector<AdamWSlice> slices;
  for (auto& t : there) slices.push_back(t.slice(0, MORTISE_F32, 0));
  ASSERT_EQ(adamw_cuda(slices.data(), 1300, MORTISE_F32, ledger.device(), kBetas, kEps, nullptr), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    if (here[i].length() > 0) here[i].update_on_host(ledger.step(0, kBetas), MORTISE_F32, MORTISE_F32, false);
    ASSERT_TRUE(here[i] == there[i]) << i;
  }
}

}  // namespace
}  // namespace mortise::kernels
