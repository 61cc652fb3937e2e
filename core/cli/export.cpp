// mortise export DIR -o OUT: a checkpoint's model/ is a Hugging Face folder; here it gets a dtype, a README and a place
// of its own. Of a model that something was added to, either the two in one, or what was added by itself.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <tuple>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/cli/adapter.hpp"
#include "core/cli/cast.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/cli/merge.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/files.hpp"
#include "formats/huggingface/config.hpp"
#include "formats/huggingface/folder.hpp"
#include "formats/huggingface/peft.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

using huggingface::kConfigFile;
using huggingface::kWeightsFile;

[[noreturn]] void refuse(const std::string& code, const std::string& message, const std::string& fix, int exit) {
  throw Failure(trouble(exit, code, message, "", fix));
}

// A folder under a name of its own until it is whole.
class NewFolder {
 public:
  explicit NewFolder(std::string path) : path_(std::move(path)), beside_(path_ + ".tmp-" + std::to_string(::getpid())) {
    if (::mkdir(beside_.c_str(), 0755) != 0)
      refuse("dir_not_made", path_ + " cannot be made: " + std::strerror(errno), "choose another place: -o OUT",
             kExitExists);
  }
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(beside_, ignored);
  }
  void file(const std::string& name, const std::function<void(const Sink&)>& body) {
    OpenFile out(beside_ + "/" + name, path_ + "/" + name);
    body([&](const void* data, size_t n) {
      out.write(data, n);
      bytes_ += n;
    });
    out.finish();
    names_.push_back(name);
  }
  void text(const std::string& name, const std::string& text) {
    file(name, [&](const Sink& sink) { sink(text.data(), text.size()); });
  }
  void commit() {
    sync_folder(beside_);
    must_be_free(path_);
    rename_path(beside_, path_);
    sync_folder(fs::path(path_).parent_path().string());
  }
  static void must_be_free(const std::string& path) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(path, error)))
      refuse("out_exists", path + " exists; nothing is overwritten", "another folder: -o " + shell_word(path + "-2"),
             kExitExists);
  }
  const std::vector<std::string>& names() const { return names_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::string path_, beside_;
  std::vector<std::string> names_;
  uint64_t bytes_ = 0;
};

constexpr size_t kMostFileBytes = size_t{1} << 30;  // of a tokenizer: generous

// The files of a model's folder besides its own two, by name: what the tokenizer left there. Only what was saved: a
// file that somebody put beside them is none of the checkpoint.
std::vector<std::string> other_files(const CheckpointManifest& saved) {
  std::vector<std::string> names;
  for (const auto& [path, file] : saved.files)
    if (const fs::path p = path;
        p.parent_path() == "model" && p.filename() != kConfigFile && p.filename() != kWeightsFile)
      names.push_back(p.filename());
  return names;
}

// ": wpe.weight is missing"
std::string because(const huggingface::Config& config) {
  const std::vector<std::string> differences = config.differences();
  return differences.empty() ? "" : ": " + join(differences, ", ");
}

std::string tokenizer_text(const CheckpointManifest& saved, bool has_files) {
  const auto found =
      std::ranges::find_if(saved.plugins, [](const auto& each) { return each.first.starts_with("tokenizer."); });
  if (has_files) return "";
  return found == saved.plugins.end() ? "; no tokenizer" : "; no tokenizer files: " + found->first + " has none";
}

// What Python calls for the model of a folder; with a base, for what was added to that.
std::string loading(const std::string& architecture, const std::string& base, const std::string& folder) {
  const std::string model = architecture + ".from_pretrained(" + json_string(base.empty() ? folder : base) + ")";
  return base.empty() ? model : "PeftModel.from_pretrained(" + model + ", " + json_string(folder) + ")";
}

std::string readme(const std::string& run, const CheckpointManifest& saved, const huggingface::Config& config,
                   const std::string& dtype, const std::string& base) {
  const std::string by = config.architecture();
  return "# " + run + "\n\nStep " + with_commas(saved.step) + " of the run `" + run + "`, exported by Mortise " +
         MORTISE_VERSION + " as " + dtype + ".\nThe checkpoint's SHA-256 is `" + saved.sha256 + "`.\n\n" +
         (by.empty()
              ? "It is of no architecture of transformers" + because(config) + ".\n"
              : "```python\nfrom transformers import " + by + (base.empty() ? "" : "\nfrom peft import PeftModel") +
                    "\nmodel = " + loading(by, base, ".") + "\n```\n");
}

// In what form a run is written.
constexpr const char *kWhole = "huggingface", *kAdapter = "peft";

// What was asked for.
struct Ask {
  std::string dir, out, checkpoint;
  std::string weights;                // PLUGIN/STATE; "": those that train
  std::string to;                     // kWhole or kAdapter
  uint32_t dtype = MORTISE_NO_DTYPE;  // as the weights are
};

Ask ask_of(const Arguments& args) {
  Ask ask{run_directory_at(args.positional[0], "export"), args.last("-o"), args.last("--checkpoint"),
          args.last("--weights"), args.last("--to", kWhole)};
  if (ask.out.empty())
    throw Failure(mistake("missing_value", "`mortise export` needs a folder to write", {},
                          "mortise export " + shell_word(ask.dir) + " -o OUT"));
  while (ask.out.size() > 1 && ask.out.back() == '/') ask.out.pop_back();
  if (ask.to != kWhole && ask.to != kAdapter)
    throw Failure(mistake("not_a_choice", "`" + ask.to + "` is no form that is written", {},
                          "--to " + either({kWhole, kAdapter})));
  if (args.has("--dtype")) {
    const std::string name = args.last("--dtype");
    ask.dtype = dtype_named(name);
    if (ask.dtype == MORTISE_NO_DTYPE)
      throw Failure(
          mistake("not_a_choice", "`" + name + "` is no dtype of an export", {}, "--dtype " + either(dtype_names())));
  }
  NewFolder::must_be_free(ask.out);
  std::error_code error;
  const std::string out = fs::weakly_canonical(ask.out, error).string() + "/",
                    checkpoints = fs::weakly_canonical(ask.dir + "/checkpoints", error).string() + "/";
  if (out.starts_with(checkpoints))
    refuse("out_in_run", ask.out + " would be among the checkpoints of the run",
           "a folder elsewhere: -o " + shell_word(fs::path(ask.out).filename().string()), kExitUsage);
  return ask;
}

// The one dtype that config.json has room for: that of the weights, or one that holds all of theirs.
uint32_t dtype_of(const TensorFile& weights) {
  uint32_t all = MORTISE_NO_DTYPE;
  for (const TensorView& t : weights.entries) {
    const uint32_t own = weight_type(t.dtype);
    if (own == MORTISE_NO_DTYPE || own == all) continue;
    const bool is_wide = own == MORTISE_F64 || all == MORTISE_F64;
    all = all == MORTISE_NO_DTYPE ? own : is_wide ? uint32_t{MORTISE_F64} : uint32_t{MORTISE_F32};
  }
  return all ? all : uint32_t{MORTISE_F32};
}

// What a plugin keeps beside the weights, in their place.
class KeptWeights {
 public:
  KeptWeights(const Verified& checkpoint, const std::string& asked)
      : file_(checkpoint.path, file_of(checkpoint, asked)), mapped_(file_.descriptor(), file_.path()),
        tensors_(parse_safetensors(mapped_.bytes(), file_.path())), state_(asked.substr(asked.find('/'))) {}
  // A weight that the plugin keeps nothing beside, because it is frozen, stays.
  void replace(TensorFile& weights) const {
    size_t n = 0;
    for (TensorView& own : weights.entries) {
      const auto kept = std::ranges::find(tensors_.entries, own.name + state_, &TensorView::name);
      if (kept == tensors_.entries.end() || kept->sizes != own.sizes) continue;
      std::tie(own.dtype, own.data, own.bytes) = std::tie(kept->dtype, kept->data, kept->bytes);
      ++n;
    }
    if (n == 0)
      refuse("no_such_weights", file_.path() + " keeps no `" + state_.substr(1) + "` of the shape of the weights",
             "leave --weights out for those that train", kExitData);
  }

 private:
  static constexpr std::string_view kEnd = ".rank-0.safetensors";
  static std::string file_of(const Verified& checkpoint, const std::string& asked) {
    const std::string path = "plugins/" + asked.substr(0, asked.find('/')) + std::string(kEnd);
    if (asked.find('/') != asked.npos && checkpoint.manifest.files.contains(path)) return path;
    std::vector<std::string> ids;
    for (const auto& [name, file] : checkpoint.manifest.files)
      if (name.starts_with("plugins/") && name.ends_with(kEnd))
        ids.push_back(name.substr(8, name.size() - 8 - kEnd.size()) + "/STATE");
    refuse("no_such_weights", checkpoint.path + " has no weights `" + asked + "`",
           ids.empty() ? "leave --weights out: no plugin of this run keeps any" : "--weights " + join(ids, ", "),
           kExitData);
  }
  RunFile file_;
  MappedFile mapped_;
  TensorFile tensors_;
  std::string state_;  // "/mean"
};

struct Exported {
  std::vector<std::string> files, differences;
  uint64_t bytes = 0;
  size_t merged = 0;
  std::string dtype, architecture, because, tokenizer;
  std::string base;  // of what was added to it: the folder of the model; "": the whole model
};

Exported write(const Ask& ask, const Verified& checkpoint) {
  const std::string model = checkpoint.path + "/model";
  const CheckpointManifest& saved = checkpoint.manifest;
  for (const char* name : {kConfigFile, kWeightsFile})
    if (!saved.files.contains(std::string("model/") + name))
      refuse("not_exported", checkpoint.path + " has no model/" + name,
             "a model whose plugin.toml has [huggingface], saved as safetensors", kExitData);
  const huggingface::Config trained(model + "/" + kConfigFile, read_run_file(model, kConfigFile, kMostFileBytes));
  const huggingface::Config config = trained.merged();
  const RunFile file(model, kWeightsFile);
  const MappedFile mapped(file.descriptor(), file.path());
  TensorFile weights = parse_safetensors(mapped.bytes(), file.path());
  std::optional<KeptWeights> kept;
  if (!ask.weights.empty()) kept.emplace(checkpoint, ask.weights).replace(weights);
  const bool whole = ask.to == kWhole;
  std::optional<Adapter> adapter;
  std::deque<std::vector<char>> merged;  // what `weights` points into, of matrices that were merged
  if (whole) merged = merge_products(weights, trained.products());
  else adapter = take_adapter(ask.dir, trained, weights);
  const mortise_dtype_row& dtype = *mortise_dtype_of(ask.dtype ? ask.dtype : dtype_of(weights));
  const std::string base = adapter ? adapter->base : "";

  NewFolder folder(ask.out);
  folder.text(whole ? kConfigFile : huggingface::kAdapterConfigFile,
              whole ? config.text_for(dtype.safetensors) : adapter->config);
  folder.file(whole ? kWeightsFile : huggingface::kAdapterFile,
              [&](const Sink& sink) { write_cast(weights, ask.dtype ? &dtype : nullptr, sink); });
  const std::vector<std::string> others = other_files(saved);
  for (const std::string& name : others) folder.text(name, read_run_file(model, name, kMostFileBytes));
  const bool has_tokenizer =
      std::ranges::any_of(others, [](const std::string& name) { return name != huggingface::kGenerationFile; });
  folder.text("README.md", readme(fs::canonical(ask.dir).filename().string(), saved, config, dtype.name, base));
  folder.commit();
  return {folder.names(),
          config.differences(),
          folder.bytes(),
          merged.size(),
          dtype.name,
          config.architecture(),
          because(config),
          tokenizer_text(saved, has_tokenizer),
          base};
}

void tell(const Ask& ask, const CheckpointManifest& saved, const Exported& e) {
  if (globals().json) {
    const Json architecture = e.architecture.empty() ? Json() : Json(e.architecture);
    const Json told = {{"path", ask.out},
                       {"files", e.files},
                       {"bytes", e.bytes},
                       {"merged", e.merged},
                       {"dtype", e.dtype},
                       {"architecture", architecture},
                       {"differences", e.differences},
                       {"base", e.base.empty() ? Json() : Json(e.base)},
                       {"step", saved.step},
                       {"sha256", saved.sha256}};
    std::cout << told.dump() << "\n";
    return;
  }
  const std::string out = escape_control(ask.out);
  std::cout << "wrote   " << out << "/  " << join(e.files, " ") << "    " << byte_size(static_cast<int64_t>(e.bytes))
            << ", step " << with_commas(saved.step) << "\nnames   " << (e.base.empty() ? "Hugging Face's" : "PEFT's")
            << e.tokenizer;
  if (e.merged > 0)
    std::cout << "\nmerged  " << with_commas(static_cast<int64_t>(e.merged)) << " added to the weights of the model";
  if (e.architecture.empty())
    std::cout << "\nnote    of no architecture of transformers" << escape_control(e.because) << "\n";
  else std::cout << "        load: " << escape_control(loading(e.architecture, e.base, ask.out)) << "\n";
}

}  // namespace

int export_model(const Arguments& args) {
  must_be_alone("a model is exported by one", "each process would have written the same files");
  const Ask ask = ask_of(args);
  with_checkpoint(ask.dir, ask.checkpoint,
                  [&](const Verified& checkpoint) { tell(ask, checkpoint.manifest, write(ask, checkpoint)); });
  return kExitOk;
}

}  // namespace mortise::cli
