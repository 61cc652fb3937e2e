#include "formats/huggingface/folder.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "formats/huggingface/json.hpp"

namespace fs = std::filesystem;

namespace mortise::huggingface {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxIndex = size_t{16} << 20;

[[noreturn]] void refuse(const std::string& at, const std::string& what) { throw FormatError("bad_index", at, what); }

// Beside the index, and nowhere else.
bool is_plain(const std::string& name) {
  return !name.empty() && !name.starts_with(".") &&
         std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '/' || c == '\\'; });
}

// From the name of a tensor to that of its file.
std::map<std::string, std::string> read_index(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kMaxIndex) refuse(path, "it is larger than any index");
  const Json j = parse_json(file.bytes());
  if (!j.is_object() || !j.contains("weight_map") || !j["weight_map"].is_object())
    refuse(path, "it has no object `weight_map`");
  std::map<std::string, std::string> file_of;
  for (const auto& [tensor, name] : j["weight_map"].items()) {
    if (!name.is_string() || !is_plain(name.get<std::string>()))
      refuse(path, "the file of " + shown(tensor) +
                       " is no name of a file beside the index: " + shown(name.dump(-1, ' ', true)));
    file_of[tensor] = name.get<std::string>();
  }
  return file_of;
}

}  // namespace

Holds held_in(const std::string& folder) {
  const auto holds = [&](const char* name) {
    std::error_code error;
    return fs::is_regular_file(fs::path(folder) / name, error);
  };
  if (holds(kWeightsFile) || holds(kIndex)) return Holds::kWeights;
  return holds(kPickleFile) || holds("pytorch_model.bin.index.json") ? Holds::kPickles : Holds::kNothing;
}

std::string conversion(const std::string& folder) {
  return "python -c 'from transformers import AutoModel as A; A.from_pretrained(\"" + folder +
         "\").save_pretrained(\"" + folder + "\")'";
}

WeightFiles::WeightFiles(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) add(fs::path(path).parent_path().string(), fs::path(path).filename().string());
  else if (fs::is_regular_file(fs::path(path) / kWeightsFile, error)) add(path, kWeightsFile);
  else add_shards(path);
}

void WeightFiles::add(const std::string& folder, const std::string& name) {
  const SafetensorsFile& file = files_.emplace_back((fs::path(folder) / name).string());
  for (const TensorView& t : file.entries()) {
    if (!tensors_.emplace(t.name, t).second)
      refuse(folder, "both " + file_of_[t.name] + " and " + name + " hold " + shown(t.name));
    file_of_[t.name] = name;
  }
}

void WeightFiles::add_shards(const std::string& folder) {
  const std::string index = (fs::path(folder) / kIndex).string();
  const auto promised = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, name] : promised) names.insert(name);
  for (const std::string& name : names) add(folder, name);
  for (const auto& [tensor, name] : promised)
    if (const auto found = file_of_.find(tensor); found == file_of_.end() || found->second != name)
      refuse(index, shown(name) + " does not hold " + shown(tensor) +
                        (found == file_of_.end() ? "" : "; " + shown(found->second) + " does"));
}

}  // namespace mortise::huggingface
