#include "core/cli/adapter.hpp"

#include <algorithm>
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

// The same numbers, whatever their types.
bool are_equal(const TensorView& one, const TensorView& other) {
  const mortise_dtype_row *a = mortise_dtype_of(weight_type(one.dtype)),
                          *b = mortise_dtype_of(weight_type(other.dtype));
  if (one.sizes != other.sizes || a->bytes == 0 || b->bytes == 0) return false;
  for (size_t i = 0; i < one.bytes / a->bytes; ++i)
    if (mortise_element_get(a->dtype, static_cast<const char*>(one.data) + i * a->bytes) !=
        mortise_element_get(b->dtype, static_cast<const char*>(other.data) + i * b->bytes))
      return false;
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
          found != files.tensors().end() && !added.contains(own.name) && !are_equal(own, found->second))
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
