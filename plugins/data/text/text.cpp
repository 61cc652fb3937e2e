// Text files as one row of tokens, cut into samples that each predict their next token.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"
#include "prose.hpp"

namespace {
using namespace mortise;

// 128 bits of a row of tokens, for telling one row from another. Each step is invertible in the token, so rows of one
// length that differ in one token always differ here; otherwise they agree by chance alone.
class TokenHash {
 public:
  void add(int64_t token) {
    for (size_t i = 0; i < 2; ++i) {
      lanes_[i] = (lanes_[i] ^ static_cast<uint64_t>(token)) * kFactors[i];
      lanes_[i] ^= lanes_[i] >> 32;
    }
  }
  std::string text() const {
    char hex[33];
    std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(lanes_[0]),
                  static_cast<unsigned long long>(lanes_[1]));
    return hex;
  }

 private:
  // The odd numbers nearest to 2^64 / golden ratio and 2^64 / sqrt(3).
  static constexpr uint64_t kFactors[2] = {0x9E3779B97F4A7C15u, 0x93CD3A2C8198E269u};
  uint64_t lanes_[2] = {0, 0};
};

// What a file begins with that has to be decompressed before it is text.
struct Compressed {
  std::string_view begins_with, name, with;
};
using namespace std::string_view_literals;
constexpr Compressed kCompressed[] = {{"\x1F\x8B"sv, "gzip", "gunzip"},
                                      {"\x28\xB5\x2F\xFD"sv, "Zstandard", "unzstd"},
                                      {"\xFD\x37zXZ\0"sv, "xz", "unxz"},
                                      {"BZh"sv, "bzip2", "bunzip2"},
                                      {"PK\3\4"sv, "zip", "unzip"}};

// The files of one split. Sample i pairs tokens [i·L, i·L + L) with those one further; the last sample may be shorter.
struct Split {
  std::vector<int32_t> tokens;
  TokenHash hash;
  std::string about, fingerprint;

  int64_t samples(int64_t length) const {
    return tokens.size() < 2 ? 0 : (static_cast<int64_t>(tokens.size()) - 2) / length + 1;
  }
};

class Text {
 public:
  void open(const mortise_data_request* request) {
    open_api(api.host);  // the tokenizer may have come after us
    need(api.tokenizer, "mortise.tokenizer/0");
    length_ = request->sequence_length;
    if (length_ < 1)
      throw Error(MORTISE_E_CONFIG, "data.text cuts text into samples and needs a length",
                  "[data] sequence_length = 128");
  }

  // Reads the files: of a split that nobody asks for they need not be there.
  void describe(mortise_str split, mortise_split* out) {
    const bool validation = view(split) == "validation";
    Split& s = validation ? validation_ : train_;
    if (s.tokens.empty() && !(validation && config::texts("validation_path").empty()))
      read(validation ? "validation_path" : "path", s);
    const size_t longest = std::min(static_cast<size_t>(length_), s.tokens.size());
    while (positions_.size() < longest) positions_.push_back(static_cast<int64_t>(positions_.size()));
    out->samples = s.samples(length_);
    out->about = str(s.about);
    if (!MORTISE_HAS_ROOM(out, fingerprint) || s.tokens.empty()) return;
    s.fingerprint = with_commas(static_cast<int64_t>(s.tokens.size())) + " tokens, " + with_commas(length_) +
                    " a sample, " + s.hash.text();
    out->fingerprint = str(s.fingerprint);
  }

  void vocabulary(int64_t* size) { *size = 0; }  // the tokenizer knows

  void get(mortise_str split, const int64_t* numbers, const int64_t*, uint32_t n, mortise_rows* rows) {
    const Split& s = split_of(split);
    std::vector<int64_t> ids;
    for (uint32_t row = 0; row < n; ++row) {
      if (numbers[row] < 0 || numbers[row] >= s.samples(length_))
        throw Error(MORTISE_E_ARGUMENT, "data.text has no sample " + std::to_string(numbers[row]));
      const size_t begin = static_cast<size_t>(numbers[row] * length_);
      const size_t count = std::min(static_cast<size_t>(length_), s.tokens.size() - 1 - begin);
      ids.assign(s.tokens.begin() + static_cast<ptrdiff_t>(begin),
                 s.tokens.begin() + static_cast<ptrdiff_t>(begin + count + 1));
      put<int64_t>(rows, row, 0, {ids.data(), count});
      put<int64_t>(rows, row, 1, {ids.data() + 1, count});
      put<int64_t>(rows, row, 2, {positions_.data(), count});
    }
  }

 private:
  const Split& split_of(mortise_str split) const { return view(split) == "validation" ? validation_ : train_; }

  void read(std::string_view key, Split& split) const {
    const std::vector<std::string_view> files = config::texts(key);
    if (files.empty()) config::refuse(key, "no file is named", std::string(key) + " = \"text.txt\"");
    std::string whole, words;  // each file in the memory of the one before
    std::vector<int64_t> ids;
    for (const std::string_view file : files) {
      read_file(key, file, whole);
      std::string& text = prose_ ? words = prose(std::filesystem::path(file).extension().string(), whole) : whole;
      if (file != files.back() && !text.empty() && text.back() != '\n') text += '\n';
      append_tokens(key, file, text, ids, split);
    }
    const std::string first = std::filesystem::path(files[0]).filename().string();
    const int64_t others = static_cast<int64_t>(files.size()) - 1;
    split.about = first + (others == 0 ? "" : " and " + with_commas(others) + (others == 1 ? " other" : " others")) +
                  ", " + with_commas(static_cast<int64_t>(split.tokens.size())) +
                  (split.tokens.size() == 1 ? " token" : " tokens");
    if (split.tokens.size() < 2)
      config::refuse(key, "there is too little text to learn from: " + split.about,
                     "name files with at least two tokens");
    if (split.tokens.size() <= static_cast<size_t>(length_))
      log_line(MORTISE_LOG_WARNING, split.about + ", is less than one sample of " + with_commas(length_) +
                                        " (data.sequence_length): too little to learn from");
  }

  // The file in the same folder whose name is this one but for a letter or two; "".
  static std::string name_beside(std::string_view file) {
    const std::filesystem::path wanted(file);
    std::error_code error;
    std::string near;
    size_t least = 3;
    for (std::filesystem::directory_iterator it(wanted.parent_path(), error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (const size_t edits = edits_between(wanted.filename().string(), name);
          edits < least && edits * 3 <= wanted.stem().string().size())
        least = edits, near = it->path().string();
    }
    return near;
  }

  static size_t edits_between(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= b.size(); ++j)
        diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
    }
    return row[b.size()];
  }

  // Why there is no regular file of that name.
  [[noreturn]] static void refuse_file(std::string_view key, std::string_view file, const std::error_code& error) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored))
      config::refuse(key, std::string(file) + " is a folder",
                     "name its files: " + std::string(key) + " = \"" + std::string(file) + "/*\"");
    const std::string near = name_beside(file);
    config::refuse(key, std::string(file) + ": " + error.message(),
                   near.empty() ? "a path in a file is relative to that file, one that is typed to the current folder"
                                : "there is " + near);
  }
  static void read_file(std::string_view key, std::string_view file, std::string& text) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (error) refuse_file(key, file, error);
    text.resize(size);
    std::ifstream in(std::string(file), std::ios::binary);
    if (!in.read(text.data(), static_cast<std::streamsize>(size)))
      config::refuse(key, std::string(file) + " cannot be read", "check its permissions");
    for (const Compressed& c : kCompressed)
      if (text.starts_with(c.begins_with))
        config::refuse(key, std::string(file) + " is no text: it is compressed (" + std::string(c.name) + ")",
                       "decompress it (" + std::string(c.with) + ") and name the text");
  }

  static void append_tokens(std::string_view key, std::string_view file, std::string_view text,
                            std::vector<int64_t>& ids, Split& split) {
    // Room for a token a byte is nearly always enough, so that text is encoded once.
    if (ids.size() < text.size()) ids.resize(text.size());
    size_t needed = 0;
    mortise_status status = api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed);
    if (status == MORTISE_OK && needed > ids.size()) {
      ids.resize(needed);
      status = api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed);
    }
    if (status != MORTISE_OK)
      config::refuse(key, "the tokenizer cannot read " + std::string(file),
                     "the file must be what the tokenizer expects, UTF-8 text mostly");
    for (const int64_t id : std::span(ids).first(needed)) {
      if (id < 0 || id > std::numeric_limits<int32_t>::max())
        throw Error(MORTISE_E_DATA, "the tokenizer gave the id " + std::to_string(id));
      split.hash.add(id);
      split.tokens.push_back(static_cast<int32_t>(id));
    }
  }

  const bool prose_ = config::flag("prose");
  int64_t length_ = 0;
  Split train_, validation_;
  std::vector<int64_t> positions_;
};

const mortise_data kObject = {sizeof(mortise_data), std::size(kLanguageModelFields), kLanguageModelFields,
                              thunk<&Text::open>,   thunk<&Text::describe>,          thunk<&Text::vocabulary>,
                              thunk<&Text::get>};
}  // namespace

MORTISE_PLUGIN(Text, mortise::provide("data", &kObject))
