// One layer, or one model, in the real host, held against ATen's own autograd: what the tests of this folder share.
#pragma once
#include <ATen/ATen.h>

#include "core/host/test_host.hpp"

namespace mortise::testing {

inline std::string plugin(const std::string& id) { return std::string(MORTISE_PLUGINS) + "/" + id + ".so"; }

// Every call gives other numbers, every run the same ones.
inline at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType dtype, bool learns = false) {
  static uint64_t seed = 1;
  return random(sizes, seed++, dtype).set_requires_grad(learns);
}
// The same numbers as a leaf of another graph.
inline at::Tensor leaf(const at::Tensor& t, bool learns = true) { return t.detach().clone().set_requires_grad(learns); }

// |a - b| / |b|
inline double apart(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

struct Bench : TestHost {
  explicit Bench(std::initializer_list<const char*> plugins = {"operators.aten"}) : TestHost(7) {
    for (const char* id : plugins) load(plugin(id));
  }
  // The parameters again, all of this dtype and with numbers of no meaning; then a step begins.
  void fill(at::ScalarType dtype) {
    const uint32_t d = dtype == at::kDouble ? MORTISE_F64 : dtype == at::kBFloat16 ? MORTISE_BF16 : MORTISE_F32;
    for (auto& p : get().declaration().params) p.info.value_dtype = p.info.master_dtype = p.info.grad_dtype = d;
    get().parameters().allocate(get().declaration(), at::kCPU, 7);
    for (auto& s : get().parameters().all()) s.master.copy_(numbers(s.master.sizes(), at::kDouble) * 0.3);
    begin_step();
    begin_micro(0, true);
  }
  mortise_layer* layer(at::ScalarType dtype, const std::string& slot, const std::vector<Attr>& attrs,
                       const std::vector<std::string>& frozen = {}, const std::string& path = "it") {
    mortise_layer* made = nullptr;
    declare([&](Builder& b) {
      b.segment("here");
      made = b.layer(slot, path, attrs);
      for (const auto& name : frozen) b.find(name)->info.trainable = 0;
    });
    fill(dtype);
    return made;
  }
  Tensors call(mortise_layer* l, const Args& args, uint32_t n_results = 1, Pass how = {}) {
    Tensors results;
    pass = how;
    forward([&](Call& c) {
      results = c.layer(l, args, n_results);
      return results[0];
    });
    return results;
  }
  using TestHost::backward;
  void backward(const Tensors& roots, const Tensors& seeds) { run_backward(get(), roots, seeds); }
  at::Tensor learning(const std::string& name) { return leaf(value(name), param(name)->info.trainable != 0); }
};

}  // namespace mortise::testing
