// First values of parameters, from (seed, name, logical index): the same on every device, sharding and thread count.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/declaration.hpp"

namespace mortise {

// Elements 4·block … 4·block+3 of the parameter whose name's hash is `name`: uniform in (-1, 1), or normal by Box and
// Muller.
void initial_values(const uint32_t key[2], uint64_t name, uint64_t block, bool normal, double out[4]);

void initialise(at::Tensor& t, const mortise_param& p, uint64_t seed);

}  // namespace mortise
