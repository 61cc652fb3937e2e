#include "cross_entropy.hpp"

namespace mortise::aten {

CrossEntropy::CrossEntropy(const LayerSpec& spec) : smoothing_(spec.number("smoothing", 0)) {
  if (smoothing_ < 0 || smoothing_ > 1)
    throw Error(MORTISE_E_ARGUMENT,
                spec.path() + ": a smoothing of " + std::to_string(smoothing_) + " is not between 0 and 1");
}

// 1 where there is a label, else 0.
Tensor CrossEntropy::valid_N(Ref labels_N, uint32_t dtype) { return ops::to(ops::ne(labels_N, int64_t{-100}), dtype); }

// LibTorch names neither the field nor how many there are; what else it says stands.
std::array<Tensor, 2> CrossEntropy::sum_and_count(Ref log_p_NV, Ref labels_N) {
  if (const uint32_t dtype = Info(labels_N).dtype; dtype != MORTISE_I64)
    throw Error(MORTISE_E_DATA, std::string("the field `labels` is of ") + mortise_dtype_of(dtype)->safetensors +
                                    "; the loss takes numbers of classes, or ids, of I64");
  try {
    return ops::nll_loss_sum(log_p_NV, labels_N);
  } catch (const HostError&) {
    const int64_t classes = Info(log_p_NV).size(1);
    std::vector<int64_t> labels(static_cast<size_t>(Info(labels_N).numel));
    check(api.tensor->read(api.host, labels_N, labels.data(), labels.size() * sizeof(int64_t)));
    for (const int64_t label : labels)
      if (label != -100 && (label < 0 || label >= classes))
        throw Error(MORTISE_E_DATA, "the field `labels` has " + std::to_string(label) + "; the model guesses 0 to " +
                                        std::to_string(classes - 1) + ", and -100 is for what it need not guess");
    throw;
  }
}

Tensor CrossEntropy::forward(mortise_call* call, const Tensor& logits_NV, bool keep_logits, Saves& saves) const {
  const Tensor labels_N = ops::reshape(call->args[1], {-1});
  Tensor log_p_NV = cast(logits_NV, statistics_dtype(Info(logits_NV).dtype));
  if (keep_logits && log_p_NV.get() == logits_NV.get()) log_p_NV = ops::log_softmax(logits_NV);
  else ops::log_softmax_out(log_p_NV, log_p_NV);
  auto [sum, count] = sum_and_count(log_p_NV, labels_N);
  if (smoothing_ > 0) {
    const Info like(log_p_NV);
    const Tensor all = ops::sum(ops::mul(ops::sum_over(log_p_NV, 1), valid_N(labels_N, like.dtype)));
    sum = ops::sub(ops::mul(sum, 1 - smoothing_), ops::mul(all, smoothing_ / static_cast<double>(like.size(1))));
  }
  saves.own(std::move(log_p_NV));
  saves.own(std::move(count));
  saves.input(1);
  return sum;
}

Tensor CrossEntropy::backward(Ref g, const Backward& b, uint32_t at) const {
  const Ref log_p_NV = b.saved(at);
  const Info like(log_p_NV);
  const Tensor labels_N = ops::reshape(b.saved(at + 2), {-1});
  const Tensor of_label = smoothing_ > 0 ? ops::mul(g, 1 - smoothing_) : Tensor::share(g);
  Tensor g_NV = ops::nll_loss_sum_backward(of_label, log_p_NV, labels_N, b.saved(at + 1));
  if (smoothing_ > 0) {
    const Tensor each_N =
        ops::mul(ops::mul(valid_N(labels_N, like.dtype), g), -smoothing_ / static_cast<double>(like.size(1)));
    ops::add_(g_NV, ops::unsqueeze(each_N, 1));
  }
  ops::log_softmax_backward_out(g_NV, log_p_NV, g_NV);
  return g_NV;
}

}  // namespace mortise::aten
