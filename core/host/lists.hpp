// Lists of tensors for the simple form of an optimizer.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "mortise/optimizer.h"

struct mortise_list {
  std::vector<at::Tensor> tensors;
  std::vector<mortise_tensor*> handles;  // borrowed, made when asked for
};
