#include "core/loop/weights.hpp"

#include <ATen/ops/from_blob.h>

#include <filesystem>

#include "core/base/text.hpp"
#include "core/host/handle.hpp"
#include "core/state/safetensors.hpp"

namespace mortise {
namespace {

constexpr std::pair<at::ScalarType, const char*> kNames[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"}};

std::string name_of(at::ScalarType t) {
  for (const auto& [type, name] : kNames)
    if (type == t) return name;
  return "";
}

at::ScalarType type_of(const std::string& wanted) {
  for (const auto& [type, name] : kNames)
    if (name == wanted) return type;
  return at::ScalarType::Undefined;
}

[[noreturn]] void refuse(const std::string& path, const std::string& code, const std::string& message) {
  Diagnostic d;
  d.code = code;
  d.message = message;
  d.at = path;
  d.exit = kExitData;
  throw Failure(d);
}

}  // namespace

int64_t save_weights(const std::string& path, Host& host) {
  std::vector<at::Tensor> kept;
  std::vector<TensorView> views;
  int64_t bytes = 0;
  for (const auto& s : host.parameters().all()) {
    const at::Tensor t = s.master.cpu().contiguous();
    views.push_back({s.declared->name, name_of(t.scalar_type()), s.declared->sizes, t.const_data_ptr(), t.nbytes()});
    bytes += static_cast<int64_t>(t.nbytes());
    kept.push_back(t);
  }
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file(path, [&](const Sink& sink) { write_safetensors(sink, views, {{"format", "pt"}}); });
  return bytes;
}

void load_weights(const std::string& path, Host& host) {
  const SafetensorsFile file(path);
  for (auto& s : host.parameters().all()) {
    const TensorView* found = nullptr;
    for (const auto& entry : file.entries())
      if (entry.name == s.declared->name) found = &entry;
    if (!found) refuse(path, "missing_tensors", "the weights have no `" + s.declared->name + "`, which the model needs");
    const auto type = type_of(found->dtype);
    if (type == at::ScalarType::Undefined || found->sizes != s.declared->sizes) refuse(path, "wrong_tensor", "`" + found->name + "` has another shape or dtype than the model's");
    const at::Tensor t = at::from_blob(const_cast<void*>(found->data), found->sizes, at::TensorOptions().dtype(type));
    s.master.copy_(t);
    if (!s.value.is_same(s.master)) s.value.copy_(s.master);
  }
}

}  // namespace mortise
