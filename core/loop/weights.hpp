// A run's weights in a safetensors file, under the names that the model declared.
#pragma once
#include <string>

#include "core/host/host.hpp"

namespace mortise {

int64_t save_weights(const std::string& path, Host& host);  // bytes; throws Failure
void load_weights(const std::string& path, Host& host);     // throws Failure: missing, unknown or differently shaped tensors

}  // namespace mortise
