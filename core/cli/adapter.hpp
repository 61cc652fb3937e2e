// What was added to a model, by itself, for an export.
#pragma once
#include <string>

#include "formats/huggingface/config.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace mortise::cli {

struct Adapter {
  std::string config;  // adapter_config.json
  std::string base;    // the folder of the model that it is added to
};

// Leaves what was added, under the names that PEFT has for it, of the weights of a checkpoint of the run. Throws
// Failure (code no_adapter, exit 65): nothing was added, the model is nowhere, or is no longer what it was.
Adapter take_adapter(const std::string& dir, const huggingface::Config& trained, TensorFile& weights);

}  // namespace mortise::cli
