#include "cross_entropy.hpp"

namespace mortise::aten {

CrossEntropy::CrossEntropy(const LayerSpec& spec) : smoothing_(spec.number("smoothing", 0)) {
  if (smoothing_ < 0 || smoothing_ > 1)
    throw Error(MORTISE_E_ARGUMENT,
                spec.path() + ": a smoothing of " + std::to_string(smoothing_) + " is not between 0 and 1");
}

// A GPU's labels are not read here, which would wait for it: the loss of a wrong one is not a number.
static void check_labels(const Info& labels, Ref labels_N, int64_t classes) {
  if (labels.dtype != MORTISE_I64)
    throw Error(MORTISE_E_DATA, std::string("the field `labels` is of ") + mortise_dtype_of(labels.dtype)->safetensors +
                                    "; the loss takes numbers of classes, or ids, of I64");
  if (labels.device != MORTISE_CPU) return;
  if (const auto wrong = kernels::wrong_label(labels_N, classes))
    throw Error(MORTISE_E_DATA, "the field `labels` has " + std::to_string(*wrong) + "; the model guesses 0 to " +
                                    std::to_string(classes - 1) + ", and -100 is for what it need not guess");
}

static Tensor flat(Ref labels) { return ops::contiguous(ops::reshape(labels, {-1})); }

Tensor CrossEntropy::forward(mortise_call* call, const Tensor& logits_NV, Saves& saves) const {
  const Tensor labels_N = flat(call->args[1]);
  const Info labels(labels_N), logits(logits_NV);
  check_labels(labels, labels_N, logits.size(1));
  if (labels.numel != logits.size(0))
    throw Error(MORTISE_E_SHAPE, "the loss has " + std::to_string(logits.size(0)) + " rows of logits and " +
                                     std::to_string(labels.numel) + " labels");
  auto [loss_N, statistics_N2] = kernels::cross_entropy(logits_NV, labels_N, smoothing_);
  saves.own(std::move(statistics_N2));
  saves.input(1);
  return ops::sum(loss_N);
}

Tensor CrossEntropy::backward(Ref g, const Backward& b, uint32_t at, const Tensor& logits_NV, bool overwrite) const {
  const Info logits(logits_NV);
  Tensor g_NV = overwrite ? logits_NV : empty(logits.dtype, logits.shape());
  kernels::cross_entropy_gradient(logits_NV, flat(b.saved(at + 1)), smoothing_, b.saved(at), g, g_NV);
  if (overwrite) api.tensor->written(api.host, g_NV.get());  // whoever comes again over a retained graph is told
  return g_NV;
}

}  // namespace mortise::aten
