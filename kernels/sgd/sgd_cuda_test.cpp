// The kernel for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/sgd/sgd.h"
#include "kernels/sgd/sgd_cuda.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

// How the buffer is kept; SGD without momentum has none.
struct Form {
  double momentum;
  bool nesterov;
};
constexpr Form kPlain = {0, false}, kMomentum = {0.9, false}, kNesterov = {0.9, true};

// Two groups.
struct LedgerNumbers {
  double multiplier = 0.3, verdict = 1, lr[2] = {1e-2, 3e-3}, weight_decay[2] = {0.1, 0.0};
  int64_t applied = 4;
  DeviceLedger device() const { return {&multiplier, &verdict, lr, weight_decay, &applied}; }
  SGDStep step(int group, Form form) const {
    return {lr[group], weight_decay[group], form.momentum, multiplier, form.nesterov};
  }
};

// A tensor and what belongs to it, `offset` elements behind an aligned address.
template <class T>
struct Tensor {
  std::vector<T> p, b;
  std::vector<char> g;
  std::vector<uint16_t> copy;
  uint32_t grad;
  size_t offset;
  Tensor(size_t n, size_t off, uint32_t grad_dtype, unsigned seed)
      : p(n + off), b(n + off), g((n + off) * mortise_dtype_of(grad_dtype)->bytes), copy(n + off, 7), grad(grad_dtype),
        offset(off) {
    std::mt19937 bits(seed);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = static_cast<T>(normal(bits));
      b[i] = static_cast<T>(normal(bits));
      mortise_element_set(grad, &g[i * mortise_dtype_of(grad)->bytes], normal(bits));
    }
  }
  static constexpr uint32_t kMaster = sizeof(T) == 8 ? MORTISE_F64 : MORTISE_F32;
  int64_t length() const { return static_cast<int64_t>(p.size() - offset); }
  void* gradient() { return g.data() + offset * mortise_dtype_of(grad)->bytes; }
  SGDSlice slice(int group, uint32_t copy_dtype, Form form) {
    return {p.data() + offset,
            form.momentum != 0 ? b.data() + offset : nullptr,
            gradient(),
            copy_dtype ? copy.data() + offset : nullptr,
            length(),
            group,
            static_cast<uint16_t>(grad),
            static_cast<uint16_t>(copy_dtype)};
  }
  void update_on_host(const SGDStep& step, bool copies) {
    sgd_update(step,
               {kMaster, grad, p.data() + offset, step.momentum != 0 ? b.data() + offset : nullptr, gradient(),
                copies ? copy.data() + offset : nullptr},
               0, length());
  }
  bool operator==(const Tensor& o) const { return p == o.p && b == o.b && copy == o.copy; }
};

template <class T>
const char* update(const std::vector<SGDSlice>& slices, const LedgerNumbers& ledger, Form form) {
  return sgd_cuda(slices.data(), static_cast<int64_t>(slices.size()), Tensor<T>::kMaster, ledger.device(),
                  form.momentum, form.nesterov, nullptr);
}

// Lengths around a piece of a block, aligned and not, in two groups.
template <class T>
void expect_same_bits(uint32_t grad, Form form) {
  const LedgerNumbers ledger;
  std::vector<Tensor<T>> there;
  unsigned seed = 1;
  for (const size_t n : {1, 3, 255, 1027, 8191, 8192, 8193, 20000})
    for (const size_t offset : {0, 1, 4}) there.emplace_back(n, offset, grad, seed++);
  std::vector<Tensor<T>> here = there;
  std::vector<SGDSlice> slices;
  for (size_t i = 0; i < there.size(); ++i)
    slices.push_back(there[i].slice(static_cast<int>(i % 2), i % 4 == 0 ? MORTISE_BF16 : 0, form));
  ASSERT_EQ(update<T>(slices, ledger, form), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    here[i].update_on_host(ledger.step(static_cast<int>(i % 2), form), i % 4 == 0);
    EXPECT_TRUE(here[i] == there[i]) << "tensor " << i << " of " << here[i].length() << " elements, gradients in "
                                     << mortise_dtype_of(grad)->name;
  }
}

TEST(SGDCuda, HasTheBitsOfTheHostsProcessor) {
  for (const uint32_t grad : {MORTISE_F32, MORTISE_F64, MORTISE_BF16})
    for (const Form form : {kPlain, kMomentum, kNesterov}) {
      expect_same_bits<float>(grad, form);
      expect_same_bits<double>(grad, form);
    }
}

TEST(SGDCuda, WritesACopyInFp16) {
  for (const size_t offset : {0, 1}) {
    Tensor<float> t(1001, offset, MORTISE_F32, 1);
    ASSERT_EQ(update<float>({t.slice(0, MORTISE_F16, kMomentum)}, {}, kMomentum), nullptr);
    for (size_t i = offset; i < t.p.size(); ++i) ASSERT_EQ(t.copy[i], mortise_f16_from_float(t.p[i])) << i;
  }
}

TEST(SGDCuda, ChangesNothingIfTheStepIsSkipped) {
  LedgerNumbers ledger;
  ledger.verdict = 0;
  for (const Form form : {kPlain, kMomentum, kNesterov}) {
    Tensor<float> t(5000, 0, MORTISE_F32, 1);
    const Tensor<float> before = t;
    ASSERT_EQ(update<float>({t.slice(0, MORTISE_BF16, form)}, ledger, form), nullptr);
    EXPECT_TRUE(t == before);
  }
}

TEST(SGDCuda, TakesMoreTensorsThanOneTableHolds) {
  const LedgerNumbers ledger;
  std::vector<Tensor<float>> there;
  for (unsigned i = 0; i < 1300; ++i) there.emplace_back(i % 5, 0, MORTISE_F32, i + 1);  // empty ones, too
  std::vector<Tensor<float>> here = there;
  std::vector<SGDSlice> slices;
  for (auto& t : there) slices.push_back(t.slice(0, 0, kMomentum));
  ASSERT_EQ(update<float>(slices, ledger, kMomentum), nullptr);
  for (size_t i = 0; i < here.size(); ++i) {
    if (here[i].length() > 0) here[i].update_on_host(ledger.step(0, kMomentum), false);
    ASSERT_TRUE(here[i] == there[i]) << i;
  }
}

}  // namespace
}  // namespace mortise::kernels
