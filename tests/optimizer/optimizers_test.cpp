// Twenty steps of each optimizer beside the same steps in ATen's operators: those of this tree in the order of
// torch/optim/adam.py and sgd.py (torch 2.11), and the example's in plain C, of the simple form, bit for bit.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "mortise/testing/fake_slice.hpp"
#include "tests/optimizer/boxed.hpp"

namespace {

using namespace mortise::testing;
constexpr int64_t kLength = 1003;  // whole vectors and a rest
constexpr int kSteps = 20;
constexpr double kRate = 1e-2, kDecay = 0.1;

std::string plugin(const std::string& id) { return std::string(MORTISE_PLUGINS) + "/" + id + ".so"; }

template <class T>
std::vector<T> normal(uint64_t seed) {
  const at::Tensor t = at::randn({kLength}, at::make_generator<at::CPUGeneratorImpl>(seed),
                                 at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  return {t.const_data_ptr<T>(), t.const_data_ptr<T>() + kLength};
}
template <class T>
at::Tensor tensor(const std::vector<T>& v) {
  return at::from_blob(const_cast<T*>(v.data()), {kLength},
                       at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value))
      .clone();
}

// One step in ATen: parameter, gradient, two states, the number of the step.
using Reference = void (*)(at::Tensor& p, const at::Tensor& g, at::Tensor& a, at::Tensor& b, int t);

void adamw(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v, int t) {
  p.mul_(1 - kRate * kDecay);
  m.lerp_(g, 1 - 0.9);
  v.mul_(0.999).addcmul_(g, g, 1 - 0.999);
  const double step_size = kRate / (1 - std::pow(0.9, t)), root = std::sqrt(1 - std::pow(0.999, t));
  p.addcdiv_(m, v.sqrt().div_(root).add_(1e-8), -step_size);
}
void sgd(at::Tensor& p, const at::Tensor& g, at::Tensor&, at::Tensor&, int) { p.add_(g.add(p, kDecay), -kRate); }
template <bool kNesterov>
void sgd_momentum(at::Tensor& p, const at::Tensor& g, at::Tensor& b, at::Tensor&, int t) {
  const at::Tensor d = g.add(p, kDecay);
  t == 1 ? b.copy_(d) : b.mul_(0.9).add_(d);
  p.add_(kNesterov ? d.add(b, 0.9) : b, -kRate);
}

// The largest difference after all steps, relative to the rounding unit of T at 1.
template <class T>
double units_apart(const std::string& id, FakeHost& host, Reference reference) {
  host.lr = {kRate};
  host.weight_decay = {kDecay};
  Plugin optimizer(host, plugin(id));
  const std::vector<T> start = normal<T>(1);
  FakeSlice slice(host, optimizer, host.add_param("w", "matrix", {kLength}), start, start);
  at::Tensor p = tensor(start), a = at::zeros_like(p), b = at::zeros_like(p);
  for (int t = 1; t <= kSteps; ++t) {
    const std::vector<T> g = normal<T>(100 + static_cast<uint64_t>(t));
    std::copy(g.begin(), g.end(), mortise::Info(slice.slice.grad).as<T>());
    put<int64_t>(host.ledger().applied, t - 1);
    EXPECT_EQ(update(host, optimizer, {&slice}), MORTISE_OK);
    reference(p, tensor(g), a, b, t);
  }
  const double apart = p.sub(tensor(host.values<T>(slice.slice.master))).abs().max().item().toDouble();
  return apart / std::numeric_limits<T>::epsilon();
}

template <class T>
class Optimizers : public testing::Test {
 protected:
  FakeHost host;
};
using Masters = testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizers, Masters);

// ATen multiplies and adds in one rounding where the processor can, we in two, so that bits are the same everywhere.
// Numbers here are below 4, where the last place is worth 2 units; measured: 1 to 4 units after all steps.
constexpr double kUnits = 8;

TYPED_TEST(Optimizers, AdamWFollowsTorch) {
  this->host.set("betas", std::vector<double>{0.9, 0.999}).set("eps", 1e-8);
  EXPECT_LE(units_apart<TypeParam>("optimizer.adamw", this->host, adamw), kUnits);
}

TYPED_TEST(Optimizers, SGDFollowsTorch) {
  this->host.set("momentum", 0.0).set("nesterov", false);
  EXPECT_LE(units_apart<TypeParam>("optimizer.sgd", this->host, sgd), kUnits);
}
TYPED_TEST(Optimizers, SGDWithMomentumFollowsTorch) {
  this->host.set("momentum", 0.9).set("nesterov", false);
  EXPECT_LE(units_apart<TypeParam>("optimizer.sgd", this->host, sgd_momentum<false>), kUnits);
}
TYPED_TEST(Optimizers, SGDWithNesterovFollowsTorch) {
  this->host.set("momentum", 0.9).set("nesterov", true);
  EXPECT_LE(units_apart<TypeParam>("optimizer.sgd", this->host, sgd_momentum<true>), kUnits);
}

// ---- the simple form ----

// examples/01_c_optimizer/lion.c over lists of tensors, as ATen's functions.
struct Lion {
  std::vector<at::Tensor> params, momentum;
  void step(std::vector<at::Tensor> grads, double multiplier, double lr, double decay) {
    for (at::Tensor& g : grads)
      if (g.scalar_type() == at::kBFloat16) g = g.to(at::kFloat);
    grads = at::_foreach_mul(grads, multiplier);
    std::vector<at::Tensor> update = at::_foreach_lerp(momentum, grads, 1 - 0.9);
    at::_foreach_sign_(update);
    at::_foreach_mul_(params, 1 - lr * decay);
    at::_foreach_add_(params, update, -lr);
    at::_foreach_lerp_(momentum, grads, 1 - 0.99);
  }
};

template <class Master, class Grad>
void expect_the_same_bits(FakeHost& host, std::vector<Grad> (*gradient)(uint64_t seed)) {
  define_operators(host, {"to.dtype", "_foreach_mul.Scalar", "_foreach_lerp.Scalar", "_foreach_sqrt",
                          "_foreach_lerp_.Scalar", "_foreach_mul_.Scalar", "_foreach_add_.List", "_foreach_add_.Scalar",
                          "_foreach_addcmul_.Scalar", "_foreach_addcdiv_.Scalar", "_foreach_sign_"});
  host.set("beta1", 0.9).set("beta2", 0.99);
  host.lr = {kRate, kRate / 3};
  host.weight_decay = {kDecay, 0};
  Plugin optimizer(host, MORTISE_LION);
  const std::vector<Master> start = normal<Master>(1);
  std::deque<FakeSlice> slices;
  for (int i = 0; i < 3; ++i) {
    slices.emplace_back(host, optimizer, host.add_param("w", "matrix", {kLength}), start, gradient(1));
    slices.back().slice.group = i == 2;
  }
  Lion groups[2];
  for (const size_t group : {0, 0, 1}) {
    groups[group].params.push_back(tensor(start));
    groups[group].momentum.push_back(at::zeros_like(groups[group].params.back()));
  }
  put(host.ledger().multiplier, 1.0 / 3);
  for (uint64_t t = 1; t <= kSteps; ++t) {
    for (uint64_t i = 0; i < 3; ++i) {
      const std::vector<Grad> g = gradient(100 * i + t);
      std::copy(g.begin(), g.end(), mortise::Info(slices[i].slice.grad).as<Grad>());
    }
    put<int64_t>(host.ledger().applied, static_cast<int64_t>(t) - 1);
    groups[0].step({shared(slices[0].slice.grad), shared(slices[1].slice.grad)}, 1.0 / 3, kRate, kDecay);
    groups[1].step({shared(slices[2].slice.grad)}, 1.0 / 3, kRate / 3, 0);
    ASSERT_EQ(update(host, optimizer, {&slices[0], &slices[1], &slices[2]}), MORTISE_OK) << host.error();
  }
  const auto same = [&](const at::Tensor& expected, mortise_tensor* t) {
    return std::memcmp(expected.const_data_ptr(), mortise::Info(t).data, expected.nbytes()) == 0;
  };
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same(groups[i / 2].params[i % 2], slices[i].slice.master)) << i;
    EXPECT_TRUE(same(groups[i / 2].momentum[i % 2], slices[i].slice.states[0])) << i;
  }
  EXPECT_FALSE(same(tensor(start), slices[0].slice.master));
}

TEST(SimpleForm, LionHasTheBitsOfATensListsInFP32) {
  FakeHost host;
  expect_the_same_bits<float, float>(host, normal<float>);
}
TEST(SimpleForm, LionHasTheBitsOfATensListsInFP64) {
  FakeHost host;
  expect_the_same_bits<double, double>(host, normal<double>);
}
TEST(SimpleForm, LionWidensGradientsInBF16BeforeTheyAreScaled) {
  FakeHost host;
  expect_the_same_bits<float, uint16_t>(host, [](uint64_t seed) {
    std::vector<uint16_t> bits;
    for (const float x : normal<float>(seed)) bits.push_back(mortise_bf16_from_float(x));
    return bits;
  });
}

}  // namespace
