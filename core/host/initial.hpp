// First values of parameters, from (seed, name, logical index): the same on every device, sharding and thread count.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/declaration.hpp"

namespace mortise {

void initialise(at::Tensor& t, const mortise_param& p, uint64_t seed);
uint64_t hash_text(std::string_view text);  // FNV-1a; stable for ever, since seeds of streams hang on it

}  // namespace mortise
