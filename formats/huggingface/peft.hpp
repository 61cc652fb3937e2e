// A folder of PEFT (github.com/huggingface/peft): what was added to a model, by itself. Whoever loads it has the model.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "formats/huggingface/config.hpp"

namespace mortise::huggingface {

inline constexpr const char *kAdapterConfigFile = "adapter_config.json", *kAdapterFile = "adapter_model.safetensors";

struct AdapterFolder {
  std::string config;                        // adapter_config.json
  std::map<std::string, std::string> names;  // of the tensors that it holds: by ours, PEFT's
};

// Of a checkpoint's config.json and the names of its parameters; `base`: the folder of the model. Throws FormatError
// (no_adapter): PEFT has no folder for it; (bad_config_json).
AdapterFolder adapter_folder(const Config& trained, const std::vector<std::string>& parameters,
                             const std::string& base);

}  // namespace mortise::huggingface
