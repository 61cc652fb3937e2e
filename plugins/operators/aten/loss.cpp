// loss: the sum of the cross-entropy of logits that somebody else made, over rows whose label is not -100.
#include "cross_entropy.hpp"

namespace mortise::aten {
namespace {

class Loss {
 public:
  Loss(const Builder&, const LayerSpec& spec) : cross_entropy_(spec) {}
  void forward(mortise_call* call, Saves& saves) const {
    give(call, 0, cross_entropy_.forward(call, as_rows(call->args[0]), true, saves));
    saves.input(0);
  }
  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0) || !b.wants(0)) return;
    b.give(0, ops::reshape(cross_entropy_.backward(b.grad(0), b, 0), Info(b.saved(3)).shape()));
  }

 private:
  CrossEntropy cross_entropy_;
};

}  // namespace

const mortise_operator* loss() { return operator_of<Loss>(); }

}  // namespace mortise::aten
