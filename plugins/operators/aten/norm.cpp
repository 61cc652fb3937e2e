// norm: y = norm(x) over the last dimension.
#include "normalise.hpp"

namespace mortise::aten {
namespace {

class Norm {
 public:
  Norm(const Builder& build, const LayerSpec& spec) : norm_(build, spec) {}
  void forward(mortise_call* call, Saves& saves) const {
    saves.input(0);
    give(call, 0, norm_.forward(call, call->args[0], saves));
  }
  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0)) return;
    Tensor dx = norm_.backward(b, b.grad(0), b.saved(0), 1, b.wants(0));
    if (b.wants(0)) b.give(0, std::move(dx));
  }

 private:
  Normalise norm_;
};

}  // namespace

const mortise_operator* norm() { return operator_of<Norm>(); }

}  // namespace mortise::aten
