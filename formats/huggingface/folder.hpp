// Weights as Hugging Face keeps them: one file, a folder with model.safetensors, or shards beside
// model.safetensors.index.json.
#pragma once
#include <deque>
#include <map>
#include <string>

#include "formats/safetensors/safetensors.hpp"

namespace mortise::huggingface {

inline constexpr const char *kWeightsFile = "model.safetensors", *kPickleFile = "pytorch_model.bin";

enum class Holds { kNothing, kPickles, kWeights };
// What a folder has of weights; pickles only if it has nothing else.
Holds held_in(const std::string& folder);
// The command that makes weights of pickles.
std::string conversion(const std::string& folder);

class WeightFiles {
 public:
  // A file or a folder, mapped. Throws FormatError.
  explicit WeightFiles(const std::string& path);
  // By name; they point into the maps.
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  void add(const std::string& folder, const std::string& name);
  void add_shards(const std::string& folder);
  std::deque<SafetensorsFile> files_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> file_of_;  // by tensor
};

}  // namespace mortise::huggingface
