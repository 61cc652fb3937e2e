// The tokenizer of a model of Hugging Face: its tokenizer.json.
#include <filesystem>

#include "mortise/cpp/files.hpp"
#include "mortise/cpp/plugin.hpp"
#include "special_tokens.hpp"

namespace {
using namespace mortise;
namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = uint64_t{128} << 20;  // the largest in use have 40 MB

class HuggingFace {
 public:
  HuggingFace() {
    const std::string_view named = config::text("path");
    if (named.empty())
      config::refuse("path", "no tokenizer is named, and none lies beside [model] weights",
                     "path = \"…/tokenizer.json\", or the folder that it is in");
    std::error_code error;
    const fs::path path(named), file = fs::is_directory(path, error) ? path / "tokenizer.json" : path;
    file_ = file.string();
    const std::string& text = files_["tokenizer.json"] = contents(file);
    refusing(file, [&] { tokenizer_ = std::make_unique<huggingface::Tokenizer>(text); });
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
      if (const fs::path other = file.parent_path() / name; fs::exists(other, error)) files_[name] = contents(other);
    refusing(file.parent_path(), [&] { special_ = huggingface::special_tokens(*tokenizer_, files_); });
  }

  void size(int64_t* vocabulary) { *vocabulary = tokenizer_->size(); }

  void encode(mortise_str text, int64_t* ids, size_t room, size_t* needed) {
    const huggingface::Ids all = saying([&] { return tokenizer_->encode(view(text)); });
    *needed = all.size();
    if (all.size() <= room) std::copy(all.begin(), all.end(), ids);
  }

  void decode(const int64_t* ids, size_t n, char* text, size_t room, size_t* needed) {
    const std::string all = saying([&] { return tokenizer_->decode(ids, n); });
    *needed = all.size();
    if (all.size() <= room) std::copy(all.begin(), all.end(), text);
  }

  void special(mortise_str role, int64_t* id) {
    const auto found = special_.find(view(role));
    if (found == special_.end())
      throw Error(MORTISE_E_NOT_FOUND, "the tokenizer has no token for `" + std::string(view(role)) + "`");
    *id = found->second;
  }

  void file(uint32_t index, mortise_str* name, mortise_str* contents) {
    if (index >= files_.size()) throw Error(MORTISE_E_NOT_FOUND, "the tokenizer has no more files");
    const auto found = std::next(files_.begin(), index);
    *name = str(found->first);
    *contents = str(found->second);
  }

 private:
  static std::string contents(const fs::path& file) {
    if (files::size("path", file.string()) > kMostBytes)
      config::refuse("path", file.string() + " is larger than 128 MiB",
                     "a tokenizer.json: the largest in use have 40 MB");
    return files::contents("path", file.string());
  }
  // Names in a file may be of any length.
  static std::string short_enough(std::string why) {
    constexpr size_t kMost = 1000;
    if (why.size() <= kMost) return why;
    size_t end = kMost;
    while (end > 0 && (why[end] & 0xC0) == 0x80) --end;
    return why.substr(0, end) + "…";
  }
  template <class Body>
  static void refusing(const fs::path& file, Body&& body) {
    try {
      body();
    } catch (const huggingface::Fault& fault) {
      config::refuse(
          "path", file.string() + ": " + short_enough(fault.what()),
          "a tokenizer.json that tokenizers has written, of the parts that README.md of tokenizer.huggingface lists");
    }
  }
  template <class Body>
  std::invoke_result_t<Body> saying(Body&& body) const {
    try {
      return body();
    } catch (const huggingface::Fault& fault) {
      throw Error(MORTISE_E_DATA, file_ + ": " + short_enough(fault.what()));
    }
  }

  std::string file_;
  std::unique_ptr<const huggingface::Tokenizer> tokenizer_;
  std::map<std::string, int64_t, std::less<>> special_;
  std::map<std::string, std::string> files_;  // as they were read
};

const mortise_tokenizer kObject = {sizeof(mortise_tokenizer),   0,
                                   thunk<&HuggingFace::size>,   thunk<&HuggingFace::encode>,
                                   thunk<&HuggingFace::decode>, thunk<&HuggingFace::special>,
                                   thunk<&HuggingFace::file>};
}  // namespace

MORTISE_PLUGIN(HuggingFace, mortise::provide("tokenizer", &kObject))
