#include "core/cli/adapter.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/manifest/toml.hpp"
#include "core/store/files.hpp"
#include "formats/huggingface/folder.hpp"
#include "formats/huggingface/peft.hpp"
#include "mortise/dtype.h"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

[[noreturn]] void refuse(const std::string& dir, const std::string& why) {
  throw Failure(trouble(kExitData, "no_adapter", dir + " has no adapter to export: " + why, "",
                        "the whole model: mortise export " + shell_word(dir) + " -o OUT"));
}

// The folder that [model] weights of the run names. Of a file that of the file, of a run that of its checkpoint.
std::string base_of(const std::string& dir) {
  Report report;
  const auto root = parse_toml(read_run_file(dir, "run.toml", kMostManifestBytes), dir + "/run.toml", report);
  const TomlNode* stated = root ? root->find("model", "weights") : nullptr;
  if (!stated || !stated->text())
    refuse(dir, "it began with weights of its own, which are nowhere else ([model] weights names none)");
  const fs::path path = *stated->text();
  std::error_code error;
  if (fs::exists(path / "run.toml", error)) return checkpoint_of(path.string()).path + "/model";
  return fs::is_regular_file(path, error) ? path.parent_path().string() : path.string();
}

// Did `trained` begin as `base`? A run may have rounded it to fewer bits.
bool began_as(const TensorView& trained, const TensorView& base) {
  const mortise_dtype_row *own = mortise_dtype_of(weight_type(trained.dtype)),
                          *from = mortise_dtype_of(weight_type(base.dtype));
  if (trained.sizes != base.sizes || own->bytes == 0 || from->bytes == 0) return false;
  if (own == from) return std::memcmp(trained.data, base.data, trained.bytes) == 0;
  const auto *now = static_cast<const char*>(trained.data), *then = static_cast<const char*>(base.data);
  for (size_t i = 0; i < trained.bytes / own->bytes; ++i) {
    char rounded[sizeof(double)];
    mortise_element_set(own->dtype, rounded, mortise_element_get(from->dtype, then + i * from->bytes));
    if (std::memcmp(rounded, now + i * own->bytes, own->bytes) != 0) return false;
  }
  return true;
}

// What was added is nothing without the very weights that it was trained beside. A folder that is elsewhere today is
// not looked at.
void must_be_the_base(const std::string& dir, const std::string& base, const std::string& prefix,
                      const TensorFile& weights, const std::map<std::string, std::string>& added) {
  if (huggingface::held_in(base) != huggingface::Holds::kWeights) return;
  const huggingface::WeightFiles files(base);
  for (const TensorView& own : weights.entries)
    for (const std::string& name : {own.name, prefix + own.name})
      if (const auto found = files.tensors().find(name);
          found != files.tensors().end() && !added.contains(own.name) && !began_as(own, found->second))
        refuse(dir, "`" + name + "` of " + base + " is no longer what it was when the run began");
}

}  // namespace

Adapter take_adapter(const std::string& dir, const huggingface::Config& trained, TensorFile& weights) {
  std::vector<std::string> names;
  for (const TensorView& t : weights.entries) names.push_back(t.name);
  try {
    const std::string base = trained.products().empty() ? "" : base_of(dir);
    const huggingface::AdapterFolder folder = huggingface::adapter_folder(trained, names, base);
    must_be_the_base(dir, base, *trained.added().prefix, weights, folder.names);
    std::erase_if(weights.entries, [&](const TensorView& t) { return !folder.names.contains(t.name); });
    for (TensorView& t : weights.entries) t.name = folder.names.at(t.name);
    return {folder.config, base};
  } catch (const FormatError& e) {
    if (e.code != "no_adapter") throw;
    refuse(dir, e.message);
  }
}

}  // namespace mortise::cli
