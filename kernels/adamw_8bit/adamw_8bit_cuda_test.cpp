// The kernels for CUDA against those for the host's processor, bit for bit, on a device that the CPU stands in for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/adamw_8bit/adamw_8bit.h"
#include "kernels/adamw_8bit/adamw_8bit_cuda.h"
#include "kernels/normal.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

constexpr std::array<double, 2> kBetas = {0.9, 0.999};
constexpr double kEps = 1e-8;
using Bytes = std::vector<uint8_t>;

// Two groups, and the numbers of a step.
struct LedgerNumbers {
  double multiplier = 0.5, verdict = 1, lr[2] = {1e-2, 3e-3}, weight_decay[2] = {0.1, 0.0};
  int64_t applied = 0;
  DeviceLedger device() const { return {&multiplier, &verdict, lr, weight_decay, &applied}; }
  AdamWStep step(int group) const {
    return adamw_step(lr[group], weight_decay[group], kBetas, kEps, applied + 1, multiplier);
  }
};

Bytes bytes_of(uint32_t dtype, const std::vector<float>& x) {
  const size_t size = mortise_dtype_of(dtype)->bytes;
  Bytes all(x.size() * size);
  for (size_t i = 0; i < x.size(); ++i) mortise_element_set(dtype, &all[i * size], static_cast<double>(x[i]));
  return all;
}

// A parameter, `offset` elements behind an aligned address; with 8-bit means, or with `wide` ones in fp32.
struct State {
  uint32_t master, grad, copy_dtype;
  size_t n, offset;
  bool wide;
  Bytes p, g, m, v;
  std::vector<float> m_scale, v_scale;
  std::vector<uint16_t> copy;
  State(size_t length, size_t behind, bool is_wide, uint32_t master_dtype = MORTISE_F32, uint32_t to = 0)
      : master(master_dtype), grad(MORTISE_F32), copy_dtype(to), n(length), offset(behind), wide(is_wide),
        p(bytes_of(master, normal(n + offset, 7))), m((n + offset) * (wide ? 4 : 1), wide ? 0 : 127),
        v((n + offset) * (wide ? 4 : 1)), m_scale((n + 255) / 256), v_scale(m_scale), copy(n + offset, 7) {}

  void take_gradient(uint32_t dtype, std::vector<float> x) {
    grad = dtype;
    x.insert(x.begin(), offset, 0.0f);
    g = bytes_of(dtype, x);
  }
  // Blocks of very different size, and elements in each.
  void take_gradient(uint32_t dtype, unsigned seed) {
    std::vector<float> x = normal(n, seed);
    for (size_t i = 0; i < n; ++i) x[i] *= std::pow(10.0f, static_cast<float>(i / 256 % 3) - static_cast<float>(i % 6));
    take_gradient(dtype, x);
  }
  template <class T = void>
  T* at(Bytes& array, uint32_t dtype) {
    return reinterpret_cast<T*>(array.data() + offset * mortise_dtype_of(dtype)->bytes);
  }
  AdamW8BitSlice slice(int group) {
    const uint32_t means = wide ? MORTISE_F32 : MORTISE_U8;
    return {at(p, master),
            at(m, means),
            at(v, means),
            m_scale.data(),
            v_scale.data(),
            at(g, grad),
            copy_dtype ? &copy[offset] : nullptr,
            static_cast<int64_t>(n),
            group,
            static_cast<uint8_t>(master),
            static_cast<uint8_t>(grad),
            static_cast<uint8_t>(copy_dtype)};
  }
  void update_on_host(const AdamWStep& step) {
    AdamW8BitArrays a{.master = master, .grad = grad, .p = at(p, master), .g = at(g, grad)};
    if (copy_dtype == MORTISE_BF16) a.copy = &copy[offset];
    const auto length = static_cast<int64_t>(n);
    a.m = at<uint8_t>(m, MORTISE_U8);
    a.v = at<uint8_t>(v, MORTISE_U8);
    a.m_scale = m_scale.data();
    a.v_scale = v_scale.data();
    if (wide) adamw_32bit_update(step, a, {at<float>(m, MORTISE_F32), at<float>(v, MORTISE_F32)}, 0, length);
    else adamw_8bit_update(step, a, 0, length);
    for (size_t i = offset; i < offset + n && copy_dtype == MORTISE_F16; ++i)
      copy[i] = mortise_f16_from_float(reinterpret_cast<const float*>(p.data())[i]);
  }
  bool operator==(const State&) const = default;
};

const char* update_on_device(std::vector<State>& states, const LedgerNumbers& ledger) {
  std::vector<AdamW8BitSlice> slices;
  for (size_t i = 0; i < states.size(); ++i) slices.push_back(states[i].slice(static_cast<int>(i % 2)));
  const auto n = static_cast<int64_t>(slices.size());
  return (states.front().wide ? adamw_32bit_cuda : adamw_8bit_cuda)(slices.data(), n, ledger.device(), kBetas, kEps,
                                                                    nullptr);
}
void update_on_host(std::vector<State>& states, const LedgerNumbers& ledger) {
  for (size_t i = 0; i < states.size(); ++i) states[i].update_on_host(ledger.step(static_cast<int>(i % 2)));
}
void expect_equal(const std::vector<State>& here, const std::vector<State>& there) {
  for (size_t i = 0; i < here.size(); ++i)
    ASSERT_TRUE(here[i] == there[i]) << "tensor " << i << " of " << here[i].n << " elements, " << here[i].offset
                                     << " behind the beginning, of dtype " << here[i].master << ", with gradients of "
                                     << here[i].grad;
}

class AdamW8BitCuda : public testing::TestWithParam<bool> {};

// Lengths around a block and a piece, aligned and not, in two groups, over some steps.
TEST_P(AdamW8BitCuda, HasTheBitsOfTheHostsProcessor) {
  LedgerNumbers ledger;
  std::vector<State> there;
  for (const size_t n : {1, 7, 255, 256, 257, 2048, 2061, 32767, 33100})
    for (const size_t offset : {0, 1, 16}) there.emplace_back(n, offset, GetParam());
  std::vector<State> here = there;
  for (; ledger.applied < 4; ++ledger.applied) {
    for (size_t i = 0; i < here.size(); ++i)
      for (auto* const states : {&here, &there})
        (*states)[i].take_gradient(MORTISE_F32, static_cast<unsigned>(ledger.applied) * 100 + static_cast<unsigned>(i));
    ASSERT_EQ(update_on_device(there, ledger), nullptr);
    update_on_host(here, ledger);
    expect_equal(here, there);
  }
}

TEST_P(AdamW8BitCuda, TakesWeightsGradientsAndCopiesOfAnyDtype) {
  LedgerNumbers ledger;
  std::vector<State> there;
  for (const size_t offset : {0, 3}) {
    for (const uint32_t master : {MORTISE_F32, MORTISE_BF16, MORTISE_F16})
      for (uint32_t grad = MORTISE_F32; grad <= MORTISE_F16; ++grad) {
        there.emplace_back(1003, offset, GetParam(), master);
        there.back().take_gradient(grad, 8);
      }
    for (const uint32_t copy : {MORTISE_BF16, MORTISE_F16}) {
      there.emplace_back(1003, offset, GetParam(), uint32_t{MORTISE_F32}, copy);
      there.back().take_gradient(MORTISE_BF16, 8);
    }
  }
  std::vector<State> here = there;
  for (; ledger.applied < 2; ++ledger.applied) {
    ASSERT_EQ(update_on_device(there, ledger), nullptr);
    update_on_host(here, ledger);
    expect_equal(here, there);
  }
}

TEST_P(AdamW8BitCuda, ChangesNothingIfTheStepIsSkipped) {
  LedgerNumbers ledger;
  ledger.verdict = 0;
  std::vector<State> there(1, State(5000, 0, GetParam(), MORTISE_F32, MORTISE_BF16));
  there[0].take_gradient(MORTISE_F32, 8);
  const std::vector<State> before = there;
  ASSERT_EQ(update_on_device(there, ledger), nullptr);
  EXPECT_TRUE(there == before);
}

TEST_P(AdamW8BitCuda, TakesMoreTensorsThanOneTableHolds) {
  const LedgerNumbers ledger;
  std::vector<State> there;
  for (size_t i = 0; i < 900; ++i) {
    there.emplace_back(i % 5, 0, GetParam());  // empty ones, too
    there.back().take_gradient(MORTISE_F32, static_cast<unsigned>(i));
  }
  std::vector<State> here = there;
  ASSERT_EQ(update_on_device(there, ledger), nullptr);
  update_on_host(here, ledger);
  expect_equal(here, there);
}

INSTANTIATE_TEST_SUITE_P(Means, AdamW8BitCuda, testing::Bool(),
                         [](const auto& wide) { return wide.param ? "InFP32" : "In8Bits"; });

// In a whole block and in a short one; what is not finite is cleared, and so is what a scale from elsewhere makes of
// it.
TEST(AdamW8BitCuda, TreatsWhatIsNotFiniteAsTheHostsProcessorDoes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const LedgerNumbers ledger;
  std::vector<State> there(2, State(300, 0, false));
  std::vector<float> g = normal(300, 8);
  for (const size_t block : {0, 256}) {
    g[block + 3] = std::nanf("");
    g[block + 4] = -kInf;
    g[block + 5] = 1e30f;
    g[block + 6] = 1e-41f;
  }
  for (State& s : there) s.take_gradient(MORTISE_F32, g);
  there[1].m_scale = there[1].v_scale = {-1.0f, kInf};
  there[1].m.assign(300, 200);
  there[1].v.assign(300, 200);
  std::vector<State> here = there;
  ASSERT_EQ(update_on_device(there, ledger), nullptr);
  update_on_host(here, ledger);
  expect_equal(here, there);
  EXPECT_EQ(there[0].m[3], 127);
  EXPECT_EQ(there[0].v[260], 0);
}

// Means of 0 and scales that are not normal numbers.
TEST(AdamW8BitCuda, TakesBlocksOfZeros) {
  const LedgerNumbers ledger;
  std::vector<State> there;
  for (const float g : {0.0f, -0.0f, 1e-40f, 1e-25f}) {
    there.emplace_back(300, 0, false);
    there.back().take_gradient(MORTISE_F32, std::vector<float>(300, g));
  }
  std::vector<State> here = there;
  ASSERT_EQ(update_on_device(there, ledger), nullptr);
  update_on_host(here, ledger);
  expect_equal(here, there);
}

}  // namespace
}  // namespace mortise::kernels
