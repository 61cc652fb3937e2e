#include "core/loop/weights.hpp"

#include <ATen/ops/from_blob.h>

#include <filesystem>

#include "core/base/text.hpp"
#include "core/host/handle.hpp"
#include "core/loop/format.hpp"

namespace mortise {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& code, const std::string& message) {
  Diagnostic d;
  d.code = code;
  d.message = message;
  d.at = path;
  d.exit = kExitData;
  throw Failure(d);
}

}  // namespace

void load_weights(const std::string& path, Host& host) {
  const SafetensorsFile file(path);
  for (auto& s : host.parameters().all()) {
    const TensorView* found = nullptr;
    for (const auto& entry : file.entries())
      if (entry.name == s.declared->name) found = &entry;
    if (!found) refuse(path, "missing_tensors", "the weights have no `" + s.declared->name + "`, which the model needs");
    const auto type = type_named(found->dtype);
    if (type == at::ScalarType::Undefined || found->sizes != s.declared->sizes) refuse(path, "wrong_tensor", "`" + found->name + "` has another shape or dtype than the model's");
    const at::Tensor t = at::from_blob(const_cast<void*>(found->data), found->sizes, at::TensorOptions().dtype(type));
    s.master.copy_(t);
    if (!s.value.is_same(s.master)) s.value.copy_(s.master);
  }
}

}  // namespace mortise
