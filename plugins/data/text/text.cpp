// Text files as one row of tokens, cut into samples that each predict their next token.
#include <algorithm>
#include <filesystem>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/files.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"
#include "prose.hpp"

namespace {
using namespace mortise;

// The files of one split. Sample i pairs tokens [i·L, i·L + L) with those one further; the last sample may be shorter.
struct Split {
  std::vector<int32_t> tokens;
  std::vector<int64_t> ends;  // of each file, in tokens
  TokenHash hash;
  std::string about, fingerprint;
  files::Groups groups;

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

  // A sample is of the file that its first token is of.
  void groups(mortise_str split, const mortise_group** groups, uint32_t* n) {
    Split& s = view(split) == "validation" ? validation_ : train_;
    std::vector<int64_t> ends;
    for (const int64_t end : s.ends) ends.push_back(std::min((end + length_ - 1) / length_, s.samples(length_)));
    s.groups.set(&s == &train_ ? "path" : "validation_path", ends);
    s.groups.give(groups, n);
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
    const std::vector<std::string_view> files = files::of(key, "text.txt");
    std::string whole, words;  // each file in the memory of the one before
    std::vector<int64_t> ids;
    for (const std::string_view& file : files) {
      files::read(key, file, whole);
      std::string& text = prose_ ? words = prose(std::filesystem::path(file).extension().string(), whole) : whole;
      if (&file != &files.back() && !text.empty() && text.back() != '\n') text += '\n';
      append_tokens(key, file, text, ids, split);
      split.ends.push_back(static_cast<int64_t>(split.tokens.size()));
    }
    split.tokens.shrink_to_fit();  // file by file it grew by doubling
    split.about = files::names(files) + ", " + with_commas(static_cast<int64_t>(split.tokens.size())) +
                  (split.tokens.size() == 1 ? " token" : " tokens");
    if (split.tokens.size() < 2)
      config::refuse(key, "there is too little text to learn from: " + split.about,
                     "name files with at least two tokens");
    if (split.tokens.size() <= static_cast<size_t>(length_))
      log_line(MORTISE_LOG_WARNING, split.about + ", is less than one sample of " + with_commas(length_) +
                                        " (data.sequence_length): too little to learn from");
  }

  static void append_tokens(std::string_view key, std::string_view file, std::string_view text,
                            std::vector<int64_t>& memory, Split& split) {
    const auto ids = encode(text, memory);
    if (!ids)
      config::refuse(key, "the tokenizer cannot read " + std::string(file),
                     "another tokenizer, or text that this one can read: UTF-8 mostly");
    for (const int64_t id : *ids) split.hash.add(id);
    split.tokens.insert(split.tokens.end(), ids->begin(), ids->end());
  }

  const bool prose_ = config::flag("prose");
  int64_t length_ = 0;
  Split train_, validation_;
  std::vector<int64_t> positions_;
};

const mortise_data kObject = {
    sizeof(mortise_data),   std::size(kLanguageModelFields), kLanguageModelFields, thunk<&Text::open>,
    thunk<&Text::describe>, thunk<&Text::vocabulary>,        thunk<&Text::get>,    nullptr,
    thunk<&Text::groups>};
}  // namespace

MORTISE_PLUGIN(Text, mortise::provide("data", &kObject))
