// mortise export DIR -o OUT: a checkpoint's model/ is a Hugging Face folder; here it gets a dtype, a README and a place
// of its own.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/files.hpp"
#include "formats/huggingface/config.hpp"
#include "formats/huggingface/folder.hpp"
#include "formats/safetensors/safetensors.hpp"
#include "mortise/half.h"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

using huggingface::kConfigFile;
using huggingface::kWeightsFile;

// One dtype under its names. The first three are written.
struct Dtype {
  const char *flag, *safetensors;
  uint32_t type;
  size_t bytes;
};
constexpr Dtype kDtypes[] = {
    {"fp32", "F32", MORTISE_F32, 4},
    {"bf16", "BF16", MORTISE_BF16, 2},
    {"fp16", "F16", MORTISE_F16, 2},
    {"fp64", "F64", MORTISE_F64, 8},
};

const Dtype* dtype_called(const std::string& name, const char* const Dtype::* as) {
  const auto found = std::ranges::find_if(kDtypes, [&](const Dtype& d) { return name == d.*as; });
  return found == std::end(kDtypes) ? nullptr : found;
}

[[noreturn]] void refuse(const std::string& code, const std::string& message, const std::string& fix, int exit) {
  throw Failure(trouble(exit, code, message, "", fix));
}

template <class T>
T read_as(const char* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

double read_number(const char* at, const Dtype& dtype) {
  if (dtype.type == MORTISE_F64) return read_as<double>(at);
  if (dtype.type == MORTISE_F16) return mortise_f16_to_float(read_as<uint16_t>(at));
  if (dtype.type == MORTISE_BF16) return mortise_bf16_to_float(read_as<uint16_t>(at));
  return read_as<float>(at);
}

void write_number(char* to, double v, const Dtype& dtype) {
  const auto single = static_cast<float>(v);
  const uint16_t bits = dtype.type == MORTISE_BF16 ? mortise_bf16_from_double(v) : mortise_f16_from_double(v);
  if (dtype.bytes == 4) std::memcpy(to, &single, sizeof single);
  else std::memcpy(to, &bits, sizeof bits);
}

// One tensor's bytes in another dtype, a piece at a time.
void convert(const TensorView& t, const Dtype& dtype, const Sink& sink) {
  constexpr size_t kPiece = size_t{1} << 18;
  const Dtype& from = *dtype_called(t.dtype, &Dtype::safetensors);
  const size_t n = t.bytes / from.bytes;
  std::vector<char> piece(std::min(n, kPiece) * dtype.bytes);
  for (size_t begin = 0; begin < n; begin += kPiece) {
    const size_t count = std::min(kPiece, n - begin);
    for (size_t i = 0; i < count; ++i) {
      const double v = read_number(static_cast<const char*>(t.data) + (begin + i) * from.bytes, from);
      write_number(&piece[i * dtype.bytes], v, dtype);
      if (std::isfinite(v) && !std::isfinite(read_number(&piece[i * dtype.bytes], dtype)))
        refuse("out_of_range", "`" + t.name + "` holds " + formatted("%g", v) + ", which " + dtype.flag + " cannot",
               std::string("--dtype ") + kDtypes[1].flag, kExitData);
    }
    sink(piece.data(), count * dtype.bytes);
  }
}

void write_weights(const TensorFile& file, const Dtype& dtype, const Sink& sink) {
  std::vector<TensorView> views = file.entries;
  const auto changes = [&](const TensorView& t) {
    return dtype_called(t.dtype, &Dtype::safetensors) && t.dtype != dtype.safetensors;
  };
  for (TensorView& t : views)
    if (changes(t))
      t.bytes = t.bytes / dtype_called(t.dtype, &Dtype::safetensors)->bytes * dtype.bytes, t.dtype = dtype.safetensors;
  write_safetensors(sink, views, file.metadata, [&](size_t i) {
    const TensorView& t = file.entries[i];
    if (changes(t)) convert(t, dtype, sink);
    else sink(t.data, t.bytes);
  });
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

std::string readme(const std::string& run, const CheckpointManifest& saved, const huggingface::Config& config,
                   const std::string& dtype) {
  const std::string by = config.architecture();
  return "# " + run + "\n\nStep " + with_commas(saved.step) + " of the run `" + run + "`, exported by Mortise " +
         MORTISE_VERSION + " as " + dtype + ".\nThe checkpoint's SHA-256 is `" + saved.sha256 + "`.\n\n" +
         (by.empty()
              ? "It is of no architecture of transformers" + because(config) + ".\n"
              : "```python\nfrom transformers import " + by + "\nmodel = " + by + ".from_pretrained(\".\")\n```\n");
}

}  // namespace

int export_model(const Arguments& args) {
  if (args.positional.empty())
    throw Failure(
        mistake("missing_word", "`mortise export` needs a run directory", {}, "mortise export runs/latest -o OUT"));
  const std::string dir = run_directory_at(args.positional[0], "export");
  std::string out = args.last("-o");
  if (out.empty())
    throw Failure(mistake("missing_value", "`mortise export` needs a folder to write", {},
                          "mortise export " + shell_word(dir) + " -o OUT"));
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  if (const std::string to = args.last("--to", "huggingface"); to != "huggingface")
    throw Failure(mistake("not_a_choice", "`" + to + "` is no form that is written", {}, "--to huggingface"));
  const std::string flag = args.last("--dtype");
  const Dtype* dtype = dtype_called(flag.empty() ? kDtypes[0].flag : flag, &Dtype::flag);
  if (!dtype || dtype->bytes == 8)
    throw Failure(mistake("not_a_choice", "`" + flag + "` is no dtype of an export", {},
                          "--dtype " + either({kDtypes[0].flag, kDtypes[1].flag, kDtypes[2].flag})));
  NewFolder::must_be_free(out);

  with_checkpoint(dir, args.last("--checkpoint"), [&](const Verified& checkpoint) {
    const std::string model = checkpoint.path + "/model";
    const CheckpointManifest& saved = checkpoint.manifest;
    for (const char* name : {kConfigFile, kWeightsFile})
      if (!saved.files.contains(std::string("model/") + name))
        refuse("not_exported", checkpoint.path + " has no model/" + name,
               "a model whose plugin.toml has [huggingface], saved as safetensors", kExitData);
    const huggingface::Config config(model + "/" + kConfigFile, read_run_file(model, kConfigFile, kMostFileBytes));
    const RunFile file(model, kWeightsFile);
    const MappedFile mapped(file.descriptor(), file.path());
    const TensorFile weights = parse_safetensors(mapped.bytes(), file.path());
    if (flag.empty() && !weights.entries.empty())
      if (const Dtype* own = dtype_called(weights.entries[0].dtype, &Dtype::safetensors)) dtype = own;

    NewFolder folder(out);
    folder.text(kConfigFile, config.text_for(dtype->safetensors));
    folder.file(kWeightsFile, [&](const Sink& sink) { write_weights(weights, *dtype, sink); });
    const std::vector<std::string> others = other_files(saved);
    for (const std::string& name : others) folder.text(name, read_run_file(model, name, kMostFileBytes));
    folder.text("README.md", readme(fs::canonical(dir).filename().string(), saved, config, dtype->flag));
    folder.commit();

    const std::string by = config.architecture();
    if (globals().json) {
      std::cout << Json{{"path", out},
                        {"files", folder.names()},
                        {"bytes", folder.bytes()},
                        {"dtype", dtype->flag},
                        {"architecture", by.empty() ? Json() : Json(by)},
                        {"differences", config.differences()},
                        {"step", saved.step},
                        {"sha256", saved.sha256}}
                       .dump()
                << "\n";
      return;
    }
    std::cout << "wrote   " << escape_control(out) << "/  " << join(folder.names(), " ") << "    "
              << byte_size(static_cast<int64_t>(folder.bytes())) << "\nnames   Hugging Face's"
              << tokenizer_text(saved, !others.empty());
    if (by.empty())
      std::cout << "\nnote    of no architecture of transformers" << escape_control(because(config)) << "\n";
    else std::cout << "        load: " << escape_control(by) << ".from_pretrained(\"" << escape_control(out) << "\")\n";
  });
  return kExitOk;
}

}  // namespace mortise::cli
