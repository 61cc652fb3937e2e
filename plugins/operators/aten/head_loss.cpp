// head_loss: logits = x · Wᵀ + b, and the sum of their cross-entropy. The logits stay in the compute dtype.
#include "cross_entropy.hpp"

namespace mortise::aten {
namespace {

class HeadLoss {
 public:
  HeadLoss(const Builder& build, const LayerSpec& spec)
      : cross_entropy_(spec), weight_(build.param({spec.name() + ".weight",
                                                   "matrix",
                                                   {"vocab", "width"},
                                                   {spec.integer("vocab"), spec.integer("width")},
                                                   "normal",
                                                   spec.number("init", 0.02),
                                                   spec.param("tie")})) {
    if (spec.flag("bias", false))
      bias_ = build.param({spec.name() + ".bias", "vector", {"vocab"}, {spec.integer("vocab")}, "constant", 0});
  }

  static Refusal supports(const mortise_place* place) { return cross_entropy_supports(place); }

  // Saved: the logits and the two of the cross-entropy (absent without labels), x (absent if the weight is frozen).
  void forward(mortise_call* call, Saves& saves) const {
    const uint32_t dtype = compute_dtype(call, weight_);
    const Tensor x = cast(call->args[0], dtype);
    const bool labelled = call->args[1].tag == MORTISE_TENSOR;
    const bool wanted = call->n_results > 1 && (!labelled || (call->want & MORTISE_WANT_LOGITS));
    const Tensor w_WV = ops::t(weight_in(weight_, dtype));
    const Tensor logits_NV = bias_ ? ops::addmm(weight_in(bias_, dtype), as_rows(x), w_WV) : ops::mm(as_rows(x), w_WV);
    if (wanted) give(call, 1, as_leading(logits_NV, Info(x)));
    if (labelled) {
      wanted ? saves.output(1) : saves.own(logits_NV);
      give(call, 0, cross_entropy_.forward(call, logits_NV, saves));
    } else {
      for (int i = 0; i < 3; ++i) saves.own(Tensor());
    }
    if (trainable(weight_)) saves.input(0, x);
  }

  void backward(mortise_call* call, Backward& b) const {
    const Tensor any_NV = logits_gradient(call, b);
    if (!any_NV) return;
    const uint32_t dtype = compute_dtype(call, weight_);
    const Tensor g_NV = cast(any_NV, dtype);
    if (b.wants(0)) b.give(0, ops::view(ops::mm(g_NV, weight_in(weight_, dtype)), x_shape(b)));
    if (trainable(weight_)) product_gradient(weight_, ops::t(g_NV), as_rows(b.saved(3)));
    if (bias_ && trainable(bias_)) rows_gradient(bias_, g_NV);
  }

 private:
  // From the loss, from the logits, or from both. Of logits that were given somebody may still need the numbers.
  Tensor logits_gradient(const mortise_call* call, Backward& b) const {
    Tensor g_NV;
    const bool given = (call->want & MORTISE_WANT_LOGITS) != 0;
    if (b.grad(0)) {
      const Tensor logits_NV = given ? as_rows(b.saved(0)) : Tensor::share(b.saved(0));
      g_NV = cross_entropy_.backward(b.grad(0), b, 1, logits_NV, !given);
    }
    if (!b.grad(1)) return g_NV;
    const Tensor direct_NV = as_rows(b.grad(1));
    return g_NV ? ops::add(g_NV, direct_NV) : direct_NV;
  }

  // The leading dimensions are those of the labels, or of the logits.
  static std::vector<int64_t> x_shape(Backward& b) {
    const Info like(b.grad(0) ? b.saved(2) : b.grad(1));
    std::vector<int64_t> sizes(like.shape().begin(), like.shape().end());
    if (!b.grad(0)) sizes.pop_back();
    sizes.push_back(-1);
    return sizes;
  }

  CrossEntropy cross_entropy_;
  mortise_param *weight_, *bias_ = nullptr;
};

}  // namespace

const mortise_operator* head_loss() { return operator_of<HeadLoss>(); }

}  // namespace mortise::aten
