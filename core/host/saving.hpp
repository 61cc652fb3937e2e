// What is saved for backward, by LibTorch's rules: a tensor that was written since is refused. Where a wrapper keeps
// such tensors elsewhere (`next_saving` of autograd.h), they are its own until backward asks.
#pragma once
#include <torch/csrc/autograd/saved_variable.h>

namespace mortise {

// `is_output`: of the node that saves it.
torch::autograd::SavedVariable saved_for_backward(const at::Tensor& t, bool is_output);

}  // namespace mortise
