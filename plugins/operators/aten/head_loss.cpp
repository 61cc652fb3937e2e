// head_loss: logits = x · Wᵀ, and the sum of the cross-entropy over rows whose label is not -100.
//
// Memory is what matters here: N · V numbers are the largest tensor of a language model. Of the logits and the
// log-probabilities one is kept: the log-probabilities take the logits' place unless somebody wants the logits, and in
// backward their gradient takes that of the loss.
#include "common.hpp"

namespace mortise::aten {
namespace {

class HeadLoss {
 public:
  HeadLoss(const Builder& build, const LayerSpec& spec)
      : weight_(build.param({spec.name() + ".weight",
                             "matrix",
                             {"vocab", "width"},
                             {spec.integer("vocab"), spec.integer("width")},
                             "normal",
                             spec.number("init", 0.02),
                             spec.param("tie")})) {}

  // Saved: log-probabilities, the count of labels, the labels (these three absent without labels), x (absent if the
  // weight does not learn).
  void forward(mortise_call* call, Saves& saves) const {
    const uint32_t dtype = compute_dtype(call, weight_);
    const Tensor x = cast(call->args[0], dtype);
    const bool labelled = call->args[1].tag == MORTISE_TENSOR, wanted = !labelled || (call->want & MORTISE_WANT_LOGITS);
    Tensor logits_NV = ops::mm(as_rows(x), ops::t(weight_in(weight_, dtype)));
    if (wanted) give(call, 1, as_leading(logits_NV, Info(x)));
    if (labelled) {
      loss(call, logits_NV, wanted, saves);
    } else {
      for (int i = 0; i < 3; ++i) saves.own(Tensor());
    }
    if (trainable(weight_)) saves.input(0, x);
  }

  void backward(mortise_call* call, Backward& b) const {
    const Tensor wide_NV = logits_gradient(b);
    if (!wide_NV) return;
    const uint32_t dtype = compute_dtype(call, weight_);
    const Tensor g_NV = cast(wide_NV, dtype);
    if (b.wants(0)) b.give(0, ops::view(ops::mm(g_NV, weight_in(weight_, dtype)), x_shape(b)));
    if (trainable(weight_)) product_gradient(weight_, ops::t(g_NV), as_rows(b.saved(3)));
  }

 private:
  static void loss(mortise_call* call, const Tensor& logits_NV, bool keep_logits, Saves& saves) {
    const Tensor labels_N = ops::reshape(call->args[1], {-1});
    Tensor log_p_NV = cast(logits_NV, statistics_dtype(Info(logits_NV).dtype));
    if (keep_logits && log_p_NV.get() == logits_NV.get()) log_p_NV = ops::log_softmax(logits_NV);
    else ops::log_softmax_out(log_p_NV, log_p_NV);
    auto [sum, count] = ops::nll_loss_sum(log_p_NV, labels_N);
    give(call, 0, std::move(sum));
    saves.own(std::move(log_p_NV));
    saves.own(std::move(count));
    saves.input(1);
  }

  // From the loss, from the logits, or from both.
  static Tensor logits_gradient(Backward& b) {
    Tensor g_NV;
    if (b.grad(0)) {
      const Ref log_p_NV = b.saved(0);
      g_NV = ops::nll_loss_sum_backward(b.grad(0), log_p_NV, ops::reshape(b.saved(2), {-1}), b.saved(1));
      ops::log_softmax_backward_out(g_NV, log_p_NV, g_NV);
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

  mortise_param* weight_;
};

}  // namespace

const mortise_operator* head_loss() { return operator_of<HeadLoss>(); }

}  // namespace mortise::aten
