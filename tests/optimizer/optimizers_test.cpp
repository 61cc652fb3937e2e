// Twenty steps of each optimizer beside the same steps in ATen's operators, in the order of torch/optim/adam.py and
// sgd.py (torch 2.11).
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mortise/testing/fake_slice.hpp"

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

}  // namespace
