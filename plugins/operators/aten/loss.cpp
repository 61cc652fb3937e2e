// loss: the sum of the cross-entropy of logits that somebody else made, over rows whose label is not -100.
#include "cross_entropy.hpp"

namespace mortise::aten {
namespace {

class Loss {
 public:
  Loss(const Builder&, const LayerSpec& spec) : cross_entropy_(spec) {}
  static Refusal supports(const mortise_place* place) { return cross_entropy_supports(place); }
  void forward(mortise_call* call, Saves& saves) const {
    saves.input(0);
    give(call, 0, cross_entropy_.forward(call, rows(call->args[0]), saves));
  }
  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0) || !b.wants(0)) return;
    const Tensor g_NV = cross_entropy_.backward(b.grad(0), b, 1, rows(b.saved(0)), false);
    b.give(0, ops::reshape(g_NV, Info(b.saved(0)).shape()));
  }

 private:
  static Tensor rows(Ref logits) { return ops::contiguous(as_rows(logits)); }
  CrossEntropy cross_entropy_;
};

}  // namespace

const mortise_operator* loss() { return operator_of<Loss>(); }

}  // namespace mortise::aten
