// The sum of the cross-entropy over rows whose label is not -100, of `loss` and of `head_loss`. With smoothing s the
// target is (1 - s) at the label and s / V everywhere. Source: Szegedy et al. 2015, arXiv:1512.00567.
//
// Memory is what matters here: N · V numbers are the largest tensor of a language model. There is one array of them, in
// the dtype of the logits: the logits, whose place their gradient takes in backward. Only where somebody else has the
// logits too the gradient is another one.
#pragma once
#include "common.hpp"
#include "kernels/cross_entropy/cross_entropy.hpp"

namespace mortise::aten {

class CrossEntropy {
 public:
  explicit CrossEntropy(const LayerSpec& spec);
  // Saves two tensors: two numbers a row, the labels (argument 1). The caller saves the logits.
  Tensor forward(mortise_call* call, const Tensor& logits_NV, Saves& saves) const;
  // Of the logits, from the gradient of the sum; the two are at `at`. `overwrite`: nobody needs the logits again.
  Tensor backward(Ref g, const Backward& b, uint32_t at, const Tensor& logits_NV, bool overwrite) const;

 private:
  double smoothing_;
};

// Not on a GPU whose kernel was not built; sampling has no labels.
inline Refusal cross_entropy_supports(const mortise_place* place) {
  if (kernels::cross_entropy_runs_on(place->device) || place->mode == MORTISE_SAMPLE) return {};
  return {"the cross-entropy of operators.aten was built for the CPU only", "device.cpu"};
}

}  // namespace mortise::aten
