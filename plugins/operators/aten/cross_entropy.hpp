// The sum of the cross-entropy over rows whose label is not -100, of `loss` and of `head_loss`. With smoothing s the
// target is (1 - s) at the label and s / V everywhere. Source: Szegedy et al. 2015, arXiv:1512.00567.
//
// Memory is what matters here: N · V numbers are the largest tensor of a language model. Of the logits and the
// log-probabilities one is kept: the log-probabilities take the logits' place unless somebody wants the logits, and in
// backward their gradient takes that of the loss.
#pragma once
#include "common.hpp"

namespace mortise::aten {

class CrossEntropy {
 public:
  explicit CrossEntropy(const LayerSpec& spec);
  // Saves three tensors: log-probabilities, the count of labels, the labels (argument 1). `keep_logits`: they are not
  // to be overwritten.
  Tensor forward(mortise_call* call, const Tensor& logits_NV, bool keep_logits, Saves& saves) const;
  // Of the logits, from the gradient of the sum; the three are at `at`.
  Tensor backward(Ref g, const Backward& b, uint32_t at) const;

 private:
  static Tensor valid_N(Ref labels_N, uint32_t dtype);
  static std::array<Tensor, 2> sum_and_count(Ref log_p_NV, Ref labels_N);
  double smoothing_;
};

}  // namespace mortise::aten
