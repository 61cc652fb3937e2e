// Files of token ids as one row, cut into samples that each predict their next token. Nothing is read before it is
// asked for: a sample is copied out of the mapped file.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/files.hpp"
#include "mortise/cpp/plugin.hpp"
#include "token_file.hpp"

namespace {
using namespace mortise;

constexpr int64_t kLongest = 16'777'216;  // the positions of the longest sample are kept
// What the fingerprint looks at: so many windows of so many tokens, and no fewer than these of each file.
constexpr int64_t kWindows = 64, kWindowsOfAFile = 4, kWindow = 1024;

// The files of one split. Sample i pairs tokens [i·L, i·L + L) with those one further; the last sample may be shorter.
struct Split {
  std::vector<TokenFile> files;
  std::vector<int64_t> ends;  // of each file, counted over all of them
  std::string about, fingerprint;
  files::Groups groups;

  int64_t tokens() const { return ends.empty() ? 0 : ends.back(); }
  int64_t samples(int64_t length) const { return tokens() < 2 ? 0 : (tokens() - 2) / length + 1; }
};

class Tokens {
 public:
  void open(const mortise_data_request* request) {
    open_api(api.host);  // a tokenizer may have come after us
    need(api.batch, "mortise.batch/0");
    length_ = request->sequence_length;
    if (length_ < 1 || length_ > kLongest)
      throw Error(MORTISE_E_CONFIG,
                  "data.tokens cuts tokens into samples of 1 to " + with_commas(kLongest) +
                      ", data.sequence_length is " + with_commas(length_),
                  "[data] sequence_length = 1024");
    positions_.resize(static_cast<size_t>(length_));
    std::iota(positions_.begin(), positions_.end(), int64_t{0});
    limit_ = vocabulary_ = stated_ > 0 ? stated_ : api.tokenizer ? 0 : by_header();
    if (stated_ == 0 && api.tokenizer) check(api.tokenizer->size(api.host, &limit_));
    if (limit_ <= 0) limit_ = int64_t{INT32_MAX} + 1;
  }

  // Opens the files: of a split that nobody asks for they need not be there.
  void describe(mortise_str split, mortise_split* out) {
    const bool validation = view(split) == "validation";
    Split& s = validation ? validation_ : train_;
    if (s.files.empty() && !(validation && config::texts("validation_path").empty()))
      open_files(validation ? "validation_path" : "path", s);
    out->samples = s.samples(length_);
    out->about = str(s.about);
    if (MORTISE_HAS_ROOM(out, fingerprint)) out->fingerprint = str(s.fingerprint);
  }

  // A sample is of the file that its first token is of.
  void groups(mortise_str split, const mortise_group** groups, uint32_t* n) {
    Split& s = view(split) == "validation" ? validation_ : train_;
    std::vector<int64_t> ends;
    for (const int64_t end : s.ends) ends.push_back(std::min((end + length_ - 1) / length_, s.samples(length_)));
    s.groups.set(&s == &train_ ? "path" : "validation_path", ends);
    s.groups.give(groups, n);
  }

  void vocabulary(int64_t* size) { *size = vocabulary_; }

  void get(mortise_str split, const int64_t* numbers, const int64_t*, uint32_t n, mortise_rows* rows) {
    const Split& s = view(split) == "validation" ? validation_ : train_;
    std::vector<int64_t> ids;
    for (uint32_t row = 0; row < n; ++row) {
      if (numbers[row] < 0 || numbers[row] >= s.samples(length_))
        throw Error(MORTISE_E_ARGUMENT, "data.tokens has no sample " + std::to_string(numbers[row]));
      const int64_t begin = numbers[row] * length_;
      const auto count = static_cast<size_t>(std::min(length_, s.tokens() - 1 - begin));
      ids.resize(count + 1);
      read(s, begin, ids);
      put<int64_t>(rows, row, 0, {ids.data(), count});
      put<int64_t>(rows, row, 1, {ids.data() + 1, count});
      put<int64_t>(rows, row, 2, {positions_.data(), count});
    }
  }

 private:
  void open_files(std::string_view key, Split& s) const {
    const std::vector<std::string_view> paths = files::of(key, "train.bin");
    Split opened;  // nothing is left half open where a file is refused
    int64_t documents = 0;
    for (const std::string_view path : paths) {
      const TokenFile& file = opened.files.emplace_back(std::string(path), Expected{key, format_, dtype_});
      opened.ends.push_back(opened.tokens() + file.size());
      documents += file.documents();
    }
    const int64_t tokens = opened.tokens();
    opened.about =
        files::names(paths) + ", " + with_commas(tokens) + (tokens == 1 ? " token" : " tokens") +
        (documents > 0 ? " in " + with_commas(documents) + (documents == 1 ? " document" : " documents") : "");
    if (tokens < 2)
      config::refuse(key, "there are too few tokens to learn from: " + opened.about,
                     "name files with at least two tokens");
    if (tokens <= length_)
      log_line(MORTISE_LOG_WARNING, opened.about + ", is less than one sample of " + with_commas(length_) +
                                        " (data.sequence_length): too little to learn from");
    opened.fingerprint =
        with_commas(tokens) + " tokens, " + with_commas(length_) + " a sample, " + sampled_hash(opened).text();
    s = std::move(opened);
  }

  // Of each file its number of tokens, its beginning, its end and windows at equal distances between them.
  TokenHash sampled_hash(const Split& s) const {
    TokenHash hash;
    std::vector<int64_t> ids;
    const int64_t windows = std::max(kWindowsOfAFile, kWindows / static_cast<int64_t>(s.files.size()));
    for (const TokenFile& file : s.files) {
      hash.add(file.size());
      const bool whole = file.size() <= windows * kWindow;
      for (int64_t i = 0; i < (whole ? 1 : windows); ++i) {
        const int64_t last = file.size() - kWindow;
        const int64_t first = whole ? 0 : i == windows - 1 ? last : last / (windows - 1) * i;
        ids.resize(static_cast<size_t>(whole ? file.size() : kWindow));
        read(file, first, ids);
        for (const int64_t id : ids) hash.add(id);
      }
    }
    return hash;
  }

  // Tokens from `first` on, counted over all files.
  void read(const Split& s, int64_t first, std::span<int64_t> out) const {
    auto at = static_cast<size_t>(std::ranges::upper_bound(s.ends, first) - s.ends.begin());
    for (; !out.empty(); ++at) {
      const auto n = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(out.size()), s.ends[at] - first));
      read(s.files[at], first - (s.ends[at] - s.files[at].size()), out.first(n));
      first += static_cast<int64_t>(n);
      out = out.subspan(n);
    }
  }
  void read(const TokenFile& file, int64_t first, std::span<int64_t> out) const {
    file.read(first, out);
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] < 0 || out[i] >= limit_) refuse_id(file, first + static_cast<int64_t>(i), out[i]);
  }
  [[noreturn]] void refuse_id(const TokenFile& file, int64_t at, int64_t id) const {
    throw Error(MORTISE_E_DATA,
                file.path() + ": token " + with_commas(at) + " is the id " + with_commas(id) + ", the vocabulary has " +
                    with_commas(limit_),
                format_ == "raw" ? "another data.tokens.dtype than \"" + std::string(dtype_) +
                                       "\", if the ids were stored otherwise; else data.tokens.vocabulary"
                                 : "data.tokens.vocabulary, if the tokenizer has more; else the file is damaged");
  }

  // What the first file stands for, if it is there: a run that is exported needs no data.
  static int64_t by_header() {
    for (const char* key : {"path", "validation_path"})
      if (const auto files = config::texts(key); !files.empty())
        if (const int64_t vocabulary = vocabulary_by_header(files.front()); vocabulary > 0) return vocabulary;
    return 0;
  }

  const std::string_view format_ = config::text("format"), dtype_ = config::text("dtype");
  const int64_t stated_ = config::integer("vocabulary");  // 0: it is not
  int64_t length_ = 0;
  int64_t vocabulary_ = 0, limit_ = 0;  // what the model is told, 0: the tokenizer knows; what ids are below
  Split train_, validation_;
  std::vector<int64_t> positions_;
};

const mortise_data kObject = {
    sizeof(mortise_data),     std::size(kLanguageModelFields), kLanguageModelFields, thunk<&Tokens::open>,
    thunk<&Tokens::describe>, thunk<&Tokens::vocabulary>,      thunk<&Tokens::get>,  nullptr,
    thunk<&Tokens::groups>};
}  // namespace

MORTISE_PLUGIN(Tokens, mortise::provide("data", &kObject))
