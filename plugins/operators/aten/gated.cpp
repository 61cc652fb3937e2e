// gated: y = activation(gate) · up, the middle of a gated mlp. Source: Shazeer 2020, arXiv:2002.05202.
#include "common.hpp"
#include "kernels/activation/activation.hpp"

namespace mortise::aten {
namespace {

class Gated {
 public:
  Gated(const Builder&, const LayerSpec& spec) : activation_(spec, {"silu", "gelu", "gelu_tanh", "relu"}) {}

  void forward(mortise_call* call, Saves& saves) const {
    saves.input(0);
    saves.input(1);
    give(call, 0, ops::mul(activation_(Tensor::share(Ref(call->args[0]))), call->args[1]));
  }
  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0)) return;
    const Ref g = b.grad(0), gate = b.saved(0), up = b.saved(1);
    const bool y_is_saved = activation_.saves_result();
    const Tensor y = y_is_saved || b.wants(1) ? activation_(Tensor::share(gate)) : Tensor();
    if (b.wants(0)) b.give(0, activation_.backward(ops::mul(g, up), y_is_saved ? Ref(y) : gate));
    if (b.wants(1)) b.give(1, ops::mul(g, y));
  }

 private:
  kernels::Activation activation_;
};

}  // namespace

const mortise_operator* gated() { return operator_of<Gated>(); }

}  // namespace mortise::aten
