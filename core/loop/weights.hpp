// A run's first weights: from a safetensors file, under the names that the model declared.
#pragma once
#include <string>

#include "core/host/host.hpp"

namespace mortise {

void load_weights(const std::string& path, Host& host);     // throws Failure: missing, unknown or differently shaped tensors

}  // namespace mortise
