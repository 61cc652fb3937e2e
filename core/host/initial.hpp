// First values of parameters, from (seed, name, logical index): the same on every device, sharding and thread count.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/declaration.hpp"

namespace mortise {

void initialise(at::Tensor& t, const mortise_param& p, uint64_t seed);

}  // namespace mortise
