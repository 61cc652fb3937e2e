// dropout: y = x · keep / (1 − p), with the bits of this place in the random stream; nothing is saved. Outside training
// y is a copy of x.
#include "common.hpp"

namespace mortise::aten {
namespace {

class Dropout {
 public:
  Dropout(const Builder&, const LayerSpec& spec) : p_(dropout_of(spec, "p")) {}
  static Refusal supports(const mortise_place* place) { return dropout_supports(place, "p"); }
  void forward(mortise_call* call, Saves&) const { give(call, 0, apply(call, call->args[0])); }
  void backward(mortise_call* call, Backward& b) const {
    if (b.wants(0) && b.grad(0)) b.give(0, drops(call, p_) ? apply(call, b.grad(0)) : Tensor::share(b.grad(0)));
  }

 private:
  Tensor apply(const mortise_call* call, Ref x) const {
    return drops(call, p_) ? kernels::dropout(x, nullptr, random_site(call), p_, Info(x).dtype) : ops::clone(x);
  }
  double p_;
};

}  // namespace

const mortise_operator* dropout() { return operator_of<Dropout>(); }

}  // namespace mortise::aten
