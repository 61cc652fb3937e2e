// Text files as one row of tokens, cut into samples that each predict their next token.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

constexpr int64_t kIgnored = -100;
const mortise_field kFields[] = {{MORTISE_STR("input_ids"), {}, 0},
                                 {MORTISE_STR("labels"), MORTISE_STR("tokens"), kIgnored},
                                 {MORTISE_STR("positions"), {}, 0}};

// The files of one split. Sample i pairs tokens [i·L, i·L + L) with those one further; the last sample may be shorter.
struct Split {
  std::vector<int32_t> tokens;
  std::string about;

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
  }

  void vocabulary(int64_t* size) { *size = 0; }  // the tokenizer knows

  void get(mortise_str split, const int64_t* numbers, uint32_t n, mortise_rows* rows) {
    const Split& s = split_of(split);
    std::vector<int64_t> ids;
    for (uint32_t row = 0; row < n; ++row) {
      if (numbers[row] < 0 || numbers[row] >= s.samples(length_))
        throw Error(MORTISE_E_ARGUMENT, "data.text has no sample " + std::to_string(numbers[row]));
      const size_t begin = static_cast<size_t>(numbers[row] * length_);
      const size_t count = std::min(static_cast<size_t>(length_), s.tokens.size() - 1 - begin);
      ids.assign(s.tokens.begin() + static_cast<ptrdiff_t>(begin),
                 s.tokens.begin() + static_cast<ptrdiff_t>(begin + count + 1));
      check(api.batch->put(api.host, rows, row, 0, ids.data(), count));
      check(api.batch->put(api.host, rows, row, 1, ids.data() + 1, count));
      check(api.batch->put(api.host, rows, row, 2, positions_.data(), count));
    }
  }

 private:
  const Split& split_of(mortise_str split) const { return view(split) == "validation" ? validation_ : train_; }

  static void read(std::string_view key, Split& split) {
    const std::vector<std::string_view> files = config::texts(key);
    if (files.empty()) config::refuse(key, "no file is named", std::string(key) + " = \"text.txt\"");
    for (const std::string_view file : files) {
      std::string text = contents(key, file);
      if (file != files.back() && !text.empty() && text.back() != '\n') text += '\n';
      append_tokens(key, file, text, split.tokens);
    }
    const std::string first = std::filesystem::path(files[0]).filename().string();
    const int64_t others = static_cast<int64_t>(files.size()) - 1;
    split.about = first + (others == 0 ? "" : " and " + with_commas(others) + (others == 1 ? " other" : " others")) +
                  ", " + with_commas(static_cast<int64_t>(split.tokens.size())) +
                  (split.tokens.size() == 1 ? " token" : " tokens");
    if (split.tokens.size() < 2)
      config::refuse(key, "there is too little text to learn from: " + split.about,
                     "name files with at least two tokens");
  }

  static std::string contents(std::string_view key, std::string_view file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (error)
      config::refuse(key, std::string(file) + ": " + error.message(),
                     "paths are relative to the file that states them");
    std::string text(size, '\0');
    std::ifstream in(std::string(file), std::ios::binary);
    if (!in.read(text.data(), static_cast<std::streamsize>(size)))
      config::refuse(key, std::string(file) + " cannot be read", "check its permissions");
    return text;
  }

  static void append_tokens(std::string_view key, std::string_view file, std::string_view text,
                            std::vector<int32_t>& tokens) {
    // Room for a token a byte is nearly always enough, so that text is encoded once.
    std::vector<int64_t> ids(text.size());
    size_t needed = 0;
    mortise_status status = api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed);
    if (status == MORTISE_OK && needed > ids.size()) {
      ids.resize(needed);
      status = api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed);
    }
    ids.resize(needed);
    if (status != MORTISE_OK)
      config::refuse(key, "the tokenizer cannot read " + std::string(file),
                     "the file must be what the tokenizer expects, UTF-8 text mostly");
    for (const int64_t id : ids)
      if (id < 0 || id > std::numeric_limits<int32_t>::max())
        throw Error(MORTISE_E_DATA, "the tokenizer gave the id " + std::to_string(id));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  int64_t length_ = 0;
  Split train_, validation_;
  std::vector<int64_t> positions_;
};

const mortise_data kObject = {sizeof(mortise_data),   std::size(kFields),       kFields,          thunk<&Text::open>,
                              thunk<&Text::describe>, thunk<&Text::vocabulary>, thunk<&Text::get>};
}  // namespace

MORTISE_PLUGIN(Text, mortise::provide("data", &kObject))
