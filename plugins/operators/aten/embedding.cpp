// embedding: y = weight[ids], in the dtype in which the weight is stored; the residual stream begins with it.
#include "common.hpp"

namespace mortise::aten {
namespace {

class Embedding {
 public:
  Embedding(const Builder& build, const LayerSpec& spec)
      : rows_(spec.integer("vocab")), weight_(build.param({spec.name() + ".weight",
                                                           "embedding",
                                                           {"vocab", "width"},
                                                           {rows_, spec.integer("width")},
                                                           "normal",
                                                           spec.number("init", 0.02)})) {}

  void forward(mortise_call* call, Saves& saves) const {
    if (trainable(weight_)) saves.input(0);
    give(call, 0, ops::embedding(use(weight_), call->args[0]));
  }
  void backward(mortise_call*, Backward& b) const {
    if (trainable(weight_) && b.grad(0)) sum_gradient(weight_, ops::embedding_backward(b.grad(0), b.saved(0), rows_));
  }

 private:
  int64_t rows_;
  mortise_param* weight_;
};

}  // namespace

const mortise_operator* embedding() { return operator_of<Embedding>(); }

}  // namespace mortise::aten
