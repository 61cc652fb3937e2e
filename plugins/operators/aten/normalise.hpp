// The norm that `norm` and `residual_norm` have in common. Statistics are fp32 (fp64 of an fp64 stream), whatever the
// stream and the weights are stored in; y comes in the compute dtype.
#pragma once
#include "common.hpp"

namespace mortise::aten {

class Normalise {
 public:
  Normalise(const Builder& build, const LayerSpec& spec);
  // Saves two tensors, after what the caller saved.
  Tensor forward(mortise_call* call, Ref x, Saves& saves) const;
  // The gradient of x if it is wanted; `at` is where forward's two tensors are among the saved.
  Tensor backward(Backward& b, Ref g, Ref x, uint32_t at, bool wanted) const;

 private:
  Tensor layer_norm(Ref x, uint32_t dtype, Saves& saves) const;
  Tensor rms_norm(Ref x, uint32_t dtype, Saves& saves) const;
  Tensor layer_norm_backward(Backward& b, Ref g, Ref x, uint32_t at, bool wanted) const;
  Tensor rms_norm_backward(Backward& b, Ref g, Ref x, uint32_t at, bool wanted) const;

  int64_t width_;
  double eps_;
  mortise_param *weight_, *bias_ = nullptr;  // rms has no bias
};

}  // namespace mortise::aten
