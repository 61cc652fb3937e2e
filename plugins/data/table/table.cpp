// Rows of a table, encoded when they are asked for: to classify, to complete a prompt, or as texts of a language model.
//
//   task            columns               a sample
//   classification  text (or two), label  [cls] text [sep] (text [sep]), attention_mask, token_type_ids of two; labels:
//                                         the class
//   completion      prompt, completion    prompt completion [eos]; labels: the next token, none inside of the prompt
//   text            text                  text [eos]; labels: the next token
//   masked text     text                  [cls] text [sep], attention_mask; labels: whoever masks makes them
#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/files.hpp"
#include "mortise/cpp/plugin.hpp"
#include "reader.hpp"

namespace {
using namespace mortise;
using Ids = std::vector<int64_t>;

constexpr int64_t kNoLabel = -100;
constexpr int64_t kSampledRows = 256;  // encoded at the start, for the fingerprint and how many are cut

// The columns of a run, in the order of the cells of a row.
struct Task {
  enum Kind { kClassification, kCompletion, kText, kMasked } kind;
  std::vector<Column> columns;
  bool is_pair() const { return kind == kClassification && columns.size() == 3; }
  // Its rows are seen as a whole, between `cls` and `sep`; the others a token after the other.
  bool is_whole() const { return kind == kClassification || kind == kMasked; }

  // Of the keys that the manifest has. Refuses those that do not go together.
  static Task of_manifest() {
    const std::vector<std::string_view> texts = config::texts("text");
    const auto stated = [](std::string_view key) { return config::get(key).tag != MORTISE_NONE; };
    const auto column = [](std::string_view key) { return Column{std::string(key), std::string(config::text(key))}; };
    const bool completes = stated("prompt") || stated("completion");
    if (completes && stated("prompt") != stated("completion"))
      config::refuse(stated("prompt") ? "prompt" : "completion", "`prompt` and `completion` go together",
                     "name both columns; or `text` alone, which is learned whole");
    if (completes && (!texts.empty() || stated("label")))
      config::refuse("prompt", "a row is either completed or has `text`", "leave `text` and `label` out");
    if (!completes && texts.empty())
      config::refuse("text", "no column is named", "text = \"review\", with label = \"sentiment\" to classify");
    if (texts.size() > 2)
      config::refuse("text", "a row has one text or a pair", "text = [\"premise\", \"hypothesis\"]");
    if (texts.size() == 2 && !stated("label"))
      config::refuse("text", "a pair of columns is for a label", "label = \"…\"; or one column of text");
    if (stated("classes") && !stated("label"))
      config::refuse("classes", "there is no `label` that they are the values of", "label = \"…\", or leave it out");
    if (config::flag("bos") && stated("label"))
      config::refuse("bos", "rows with a label begin with `cls`, where the tokenizer has it", "leave `bos` out");
    const bool masked = config::flag("masked");
    if (masked && (completes || stated("label")))
      config::refuse("masked", "rows with a label are whole anyway, and a completion has next tokens to learn",
                     "leave `masked` out, or have `text` alone");
    if (masked && config::flag("bos"))
      config::refuse("bos", "whole rows begin with `cls`, where the tokenizer has it", "leave `bos` out");
    Task task{completes ? kCompletion : stated("label") ? kClassification : masked ? kMasked : kText, {}};
    for (const std::string_view name : texts) task.columns.push_back({"text", std::string(name)});
    if (completes) task.columns = {column("prompt"), column("completion")};
    if (task.kind == kClassification) task.columns.push_back(column("label"));
    return task;
  }
};

// The files of one split: cells one behind the other, those of row i from `columns` · i on.
struct Split {
  std::string text;
  std::vector<size_t> ends;
  std::vector<uint32_t> file, line;  // of each row
  std::vector<std::string_view> files;
  std::vector<int64_t> labels;
  std::string about, fingerprint;
  files::Groups groups;

  int64_t rows() const { return static_cast<int64_t>(line.size()); }
  std::string_view cell(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
  std::string where(int64_t row) const {
    const auto i = static_cast<size_t>(row);
    return line_of(files[file[i]], line[i]);
  }
};

// The tokens of one row.
struct Encoded {
  Ids ids, types;
  size_t given = 0;  // those that are the prompt
  bool is_cut = false;
};

// One instance a library, so its object can be filled when it is known what a sample has.
extern mortise_data object;

class Table {
 public:
  Table() { set_fields(0); }

  void open(const mortise_data_request* request) {
    open_api(api.host);  // the tokenizer may have come after us
    need(api.tokenizer, "mortise.tokenizer/0");
    length_ = request->sequence_length;
    cls_ = special_token("cls"), sep_ = special_token("sep"), eos_ = special_token("eos");
    bos_ = config::flag("bos") ? special_token("bos") : std::nullopt;
    if (config::flag("bos") && !bos_) config::refuse("bos", "the tokenizer has no such token", "leave `bos` out");
    const int64_t least = specials() + 1;
    if (length_ < least)
      throw Error(MORTISE_E_CONFIG,
                  "data.table cuts rows to a length of " + std::to_string(least) +
                      " or more, data.sequence_length is " + std::to_string(length_),
                  "[data] sequence_length = 256");
    pad_ = special_token("pad").value_or(0);
    set_fields(static_cast<double>(pad_));
  }

  // Reads the files: of a split that nobody asks for they need not be there, but that training says what classes there
  // are.
  void describe(mortise_str split, mortise_split* out) {
    const bool validation = view(split) == "validation";
    Split& s = validation ? validation_ : train_;
    if (!(validation && config::texts("validation_path").empty())) {
      read(validation ? "validation_path" : "path", s);
      if (task_.kind == Task::kClassification) set_labels(validation ? "validation_path" : "path", s);
      if (s.about.empty()) say(s);
    }
    out->samples = s.rows();
    out->about = str(s.about);
    if (MORTISE_HAS_ROOM(out, fingerprint)) out->fingerprint = str(s.fingerprint);
  }

  void vocabulary(int64_t* size) { *size = 0; }  // the tokenizer knows

  void classes(const mortise_str** names, uint32_t* n) {
    if (task_.kind == Task::kClassification) find_classes();
    *names = class_strs_.data();
    *n = static_cast<uint32_t>(class_strs_.size());
  }

  void groups(mortise_str split, const mortise_group** groups, uint32_t* n) {
    Split& s = view(split) == "validation" ? validation_ : train_;
    std::vector<int64_t> ends(s.files.size());
    for (size_t i = 0; i < ends.size(); ++i) ends[i] = std::ranges::upper_bound(s.file, i) - s.file.begin();
    s.groups.set(&s == &train_ ? "path" : "validation_path", ends);
    s.groups.give(groups, n);
  }

  void get(mortise_str split, const int64_t* numbers, const int64_t*, uint32_t n, mortise_rows* rows) {
    const Split& s = view(split) == "validation" ? validation_ : train_;
    for (uint32_t i = 0; i < n; ++i) {
      if (numbers[i] < 0 || numbers[i] >= s.rows())
        throw Error(MORTISE_E_ARGUMENT, "data.table has no sample " + std::to_string(numbers[i]));
      const Encoded row = encoded(s, numbers[i]);
      if (!task_.is_whole()) put_continued(rows, i, row);
      else put_whole(rows, i, row, s.labels.empty() ? kNoLabel : s.labels[static_cast<size_t>(numbers[i])]);
    }
  }

 private:
  // ---- what a sample has ----

  void set_fields(double pad) {
    fields_.assign(std::begin(kLanguageModelFields), std::end(kLanguageModelFields));
    if (task_.is_whole()) {
      fields_ = {sequence_of_ids(MORTISE_STR("input_ids"), {}, pad),
                 {sizeof(mortise_field), MORTISE_U8, MORTISE_STR("attention_mask"), {}, 0, kSequence, 1, 0}};
      if (task_.kind == Task::kClassification)
        fields_.push_back({sizeof(mortise_field), MORTISE_I64, MORTISE_STR("labels"), {}, kNoLabel, nullptr, 0, 0});
      if (task_.is_pair()) fields_.push_back(sequence_of_ids(MORTISE_STR("token_type_ids"), {}, 0));
    }
    fields_[0].fill = pad;
    object.fields = fields_.data();
    object.n_fields = static_cast<uint32_t>(fields_.size());
  }

  void put_whole(mortise_rows* rows, uint32_t i, const Encoded& row, int64_t label) const {
    const std::vector<uint8_t> mask(row.ids.size(), 1);
    put<int64_t>(rows, i, 0, row.ids);
    put<uint8_t>(rows, i, 1, mask);
    if (task_.kind == Task::kClassification) put<int64_t>(rows, i, 2, {&label, 1});
    if (task_.is_pair()) put<int64_t>(rows, i, 3, row.types);
  }

  // Each token but the last, and the one that follows.
  static void put_continued(mortise_rows* rows, uint32_t i, const Encoded& row) {
    const size_t n = std::max<size_t>(row.ids.size(), 2) - 1;
    Ids labels(n, kNoLabel), positions(n);
    for (size_t t = 0; t < n; ++t) {
      positions[t] = static_cast<int64_t>(t);
      if (t + 1 < row.ids.size() && t + 1 >= row.given) labels[t] = row.ids[t + 1];
    }
    put<int64_t>(rows, i, 0, {row.ids.data(), n});
    put<int64_t>(rows, i, 1, labels);
    put<int64_t>(rows, i, 2, positions);
  }

  // ---- text to tokens ----

  Ids encode_cell(const Split& s, int64_t row, size_t column) const {
    const std::string_view text = s.cell(static_cast<size_t>(row) * task_.columns.size() + column);
    if (std::optional<Ids> ids = encode(text)) return std::move(*ids);
    throw Error(MORTISE_E_DATA, s.where(row) + ": the tokenizer cannot read `" + task_.columns[column].name + "`",
                "another tokenizer, or text that this one can read: UTF-8 mostly");
  }

  // At least one token: of a text that the tokenizer makes none of, one of padding.
  Encoded encoded(const Split& s, int64_t row) const {
    Encoded e = task_.is_whole() ? encoded_whole(s, row) : encoded_to_continue(s, row);
    if (e.ids.empty()) e.ids = {pad_}, e.types = {0};
    return e;
  }

  Encoded encoded_whole(const Split& s, int64_t row) const {
    Ids a = encode_cell(s, row, 0), b = task_.is_pair() ? encode_cell(s, row, 1) : Ids();
    const auto room = static_cast<size_t>(length_ - specials());
    const auto [from_a, from_b] = cut(a.size(), b.size(), room);
    Encoded e;
    e.is_cut = from_a + from_b < a.size() + b.size();
    append(e.ids, cls_);
    e.ids.insert(e.ids.end(), a.begin(), a.begin() + static_cast<ptrdiff_t>(from_a));
    append(e.ids, sep_);
    e.types.resize(e.ids.size(), 0);
    if (!task_.is_pair()) return e;
    e.ids.insert(e.ids.end(), b.begin(), b.begin() + static_cast<ptrdiff_t>(from_b));
    append(e.ids, sep_);
    e.types.resize(e.ids.size(), 1);
    return e;
  }

  // How many of each stay. The longer one is cut first, then both to a half, of which the longer one has the odd token,
  // as the tokenizers of transformers do it ("longest_first").
  static std::array<size_t, 2> cut(size_t a, size_t b, size_t room) {
    if (a + b <= room) return {a, b};
    const size_t half = std::min({a, b, room / 2});
    return a > b ? std::array{room - half, half} : std::array{half, room - half};
  }

  // One token more than a sample has: the last is a label alone.
  Encoded encoded_to_continue(const Split& s, int64_t row) const {
    Encoded e;
    append(e.ids, bos_);
    for (size_t column = 0; column < task_.columns.size(); ++column) {
      const Ids ids = encode_cell(s, row, column);
      e.ids.insert(e.ids.end(), ids.begin(), ids.end());
      if (column + 1 < task_.columns.size()) e.given = e.ids.size();
    }
    append(e.ids, eos_);
    const size_t most = static_cast<size_t>(length_) + 1;
    e.is_cut = e.ids.size() > most;
    if (e.is_cut) e.ids.resize(most);
    return e;
  }

  // Those that a whole row has beside its text.
  int64_t specials() const {
    if (!task_.is_whole()) return 0;
    return (cls_ ? 1 : 0) + (sep_ ? 1 + task_.is_pair() : 0);
  }

  static void append(Ids& ids, const std::optional<int64_t>& special) {
    if (special) ids.push_back(*special);
  }

  // ---- files ----

  void read(std::string_view key, Split& split) const {
    if (split.rows() > 0) return;
    Split s;
    s.files = files::of(key, "rows.csv");
    const size_t labels = task_.kind == Task::kClassification;
    for (const std::string_view& file : s.files)
      read_table(key, file, {config::text("format"), config::flag("quotes")}, task_.columns,
                 [&](size_t line, std::span<const std::string> cells) {
                   // A prompt may be empty.
                   for (size_t i = task_.kind == Task::kCompletion; i < cells.size(); ++i)
                     if (cells[i].empty())
                       refuse_row(key,
                                  line_of(file, line) + " has no " +
                                      (labels && i + 1 == cells.size() ? "label" : "text") + ": `" +
                                      task_.columns[i].name + "` is empty",
                                  "fill it in, or leave the row out");
                   for (const std::string& cell : cells) s.ends.push_back((s.text += cell).size());
                   s.file.push_back(static_cast<uint32_t>(&file - s.files.data()));
                   s.line.push_back(static_cast<uint32_t>(line));
                 });
    if (s.rows() == 0)
      refuse_row(key, files::names(s.files) + (s.files.size() == 1 ? " has" : " have") + " no rows",
                 "name a file with at least one row below the names of its columns");
    split = std::move(s);
  }

  // The plan's line: how many rows, and of how many the tokens are too many. Encodes some, at equal distances.
  void say(Split& s) const {
    const int64_t n = std::min(s.rows(), kSampledRows);
    int64_t cut = 0, lost = 0;
    TokenHash hash;
    for (int64_t i = 0; i < n; ++i) {
      const Encoded row = encoded(s, i * s.rows() / n);
      cut += row.is_cut;
      lost += row.given >= row.ids.size();
      for (const int64_t id : row.ids) hash.add(id);
    }
    for (size_t i = 0; i < s.ends.size(); ++i) {
      const std::string_view cell = s.cell(i);
      hash.add(static_cast<int64_t>(cell.size()));
      for (const char c : cell) hash.add(c);
    }
    for (const int64_t label : s.labels) hash.add(label);
    s.about = files::names(s.files) + ", " + with_commas(s.rows()) + (s.rows() == 1 ? " row" : " rows");
    if (!class_names_.empty()) s.about += ", " + with_commas(static_cast<int64_t>(class_names_.size())) + " classes";
    if (cut > 0)
      s.about += std::string(n < s.rows() ? ", about " : ", ") + std::to_string(std::max<int64_t>(100 * cut / n, 1)) +
                 " % longer than " + with_commas(length_) + " tokens and cut";
    if (task_.kind == Task::kCompletion && lost > 0)
      log_line(MORTISE_LOG_WARNING, s.about + ": of " + std::to_string(lost) + " of " + std::to_string(n) +
                                        " rows nothing is learned, their prompts fill data.sequence_length");
    s.fingerprint = with_commas(s.rows()) + " rows of at most " + with_commas(length_) + " tokens, " + hash.text();
  }

  // ---- classes ----

  std::string_view label_of(const Split& s, int64_t row) const {
    return s.cell((static_cast<size_t>(row) + 1) * task_.columns.size() - 1);
  }

  static std::optional<int64_t> integer(std::string_view text) {
    int64_t i = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), i);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(i) : std::nullopt;
  }

  // Those that the manifest names, or the values of the training data: integers by size, anything else by its bytes.
  void find_classes() {
    if (!class_names_.empty()) return;
    for (const std::string_view name : config::texts("classes")) {
      if (name.empty() || std::ranges::find(class_names_, name) != class_names_.end())
        config::refuse("classes",
                       name.empty() ? "a class has no name" : "`" + std::string(name) + "` stands there twice",
                       "each value of `label` once");
      class_names_.emplace_back(name);
    }
    if (class_names_.empty()) {
      read("path", train_);
      std::map<std::string_view, int64_t> seen;
      for (int64_t row = 0; row < train_.rows(); ++row) seen.emplace(label_of(train_, row), 0);
      for (const auto& [name, zero] : seen) class_names_.emplace_back(name);
      if (std::ranges::all_of(class_names_, [](const std::string& name) { return integer(name).has_value(); }))
        std::ranges::stable_sort(class_names_, {}, [](const std::string& name) { return *integer(name); });
    }
    for (const std::string& name : class_names_) class_strs_.push_back(str(name));
  }

  void set_labels(std::string_view key, Split& s) {
    if (!s.labels.empty()) return;
    find_classes();
    std::map<std::string_view, int64_t> numbers;
    for (const std::string& name : class_names_) numbers.emplace(name, static_cast<int64_t>(numbers.size()));
    const bool are_words =
        std::ranges::none_of(class_names_, [](const std::string& name) { return integer(name).has_value(); });
    std::vector<int64_t> labels;
    for (int64_t row = 0; row < s.rows(); ++row) {
      const std::string_view label = label_of(s, row);
      const auto found = numbers.find(label);
      // Of classes that are words, a label may be the number.
      const int64_t number = are_words ? integer(label).value_or(-1) : -1;
      const bool counts = number >= 0 && number < static_cast<int64_t>(class_names_.size());
      if (found == numbers.end() && !counts) refuse_label(key, s, row);
      labels.push_back(counts ? number : found->second);
    }
    s.labels = std::move(labels);
  }

  [[noreturn]] void refuse_label(std::string_view key, const Split& s, int64_t row) const {
    constexpr size_t kShown = 12, kLetters = 60;
    std::string known;
    for (size_t i = 0; i < std::min(class_names_.size(), kShown); ++i) known += (i ? ", " : "") + class_names_[i];
    if (class_names_.size() > kShown) known += ", …";
    const bool stated = !config::texts("classes").empty();
    config::refuse({.code = "unknown_label",
                    .key = key,
                    .why = s.where(row) + ": the label `" + std::string(label_of(s, row).substr(0, kLetters)) +
                           (stated ? "` is none of `classes`" : "` is none of the training data"),
                    .beside = (stated ? "classes: " : "which has: ") + known,
                    .fix = stated ? "add it to `classes`, or leave the row out"
                                  : "mend or leave out the row; or name all values: classes = [\"…\", \"…\"]"});
  }

  const Task task_ = Task::of_manifest();
  std::vector<mortise_field> fields_;
  int64_t length_ = 0, pad_ = 0;
  std::optional<int64_t> cls_, sep_, eos_, bos_;
  Split train_, validation_;
  std::vector<std::string> class_names_;
  std::vector<mortise_str> class_strs_;
};

mortise_data object = {sizeof(mortise_data),
                       0,
                       nullptr,
                       thunk<&Table::open>,
                       thunk<&Table::describe>,
                       thunk<&Table::vocabulary>,
                       thunk<&Table::get>,
                       thunk<&Table::classes>,
                       thunk<&Table::groups>};
}  // namespace

MORTISE_PLUGIN(Table, mortise::provide("data", &object))
