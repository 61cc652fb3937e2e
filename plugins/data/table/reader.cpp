// Sources  CSV by libcsv (RFC 4180, strict), JSON by nlohmann-json
#include "reader.hpp"

#include <csv.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "mortise/cpp/files.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;

std::string name_of(std::string_view file) { return std::filesystem::path(file).filename().string(); }

std::string quoted(const std::string& name) { return "`" + name + "`"; }

// The name that was meant: the only one that nothing else takes, or the nearest.
std::string meant(const Column& column, const std::vector<Column>& wanted, std::span<const std::string> names) {
  std::vector<std::string> free;
  for (const std::string& name : names)
    if (std::ranges::find(wanted, name, &Column::name) == wanted.end()) free.push_back(name);
  if (free.size() == 1) return free[0];
  const auto edits = [&](const std::string& name) { return files::edits_between(name, column.name); };
  const auto near = std::ranges::min_element(free, {}, edits);
  return near != free.end() && edits(*near) * 2 <= column.name.size() ? *near : "";
}

[[noreturn]] void refuse_column(std::string_view file, const Column& column, const std::vector<Column>& wanted,
                                std::span<const std::string> names) {
  constexpr size_t kShown = 12;
  std::string has;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) has += (i ? ", " : "") + names[i];
  if (names.size() > kShown) has += " and " + with_commas(static_cast<int64_t>(names.size() - kShown)) + " more";
  const std::string other = meant(column, wanted, names);
  const size_t between = names.size() == 1 ? names[0].find_first_of(";\t|,") : std::string::npos;
  if (between != std::string::npos)
    refuse_row(column.key,
               line_of(file, 1) + " has one column; what stands between its names seems to be " +
                   (names[0][between] == '\t' ? "a tab" : quoted(names[0].substr(between, 1))),
               "write the file with commas as .csv, or with tabs as .tsv; or say format = \"tsv\"");
  config::refuse({.code = "no_column",
                  .key = column.key,
                  .why = name_of(file) + " has no column " + quoted(column.name),
                  .beside = line_of(file, 1) + " has: " + has,
                  .fix = other.empty() ? "name one of these" : column.key + " = \"" + other + "\""});
}

// Which of the columns each wanted one is.
std::vector<size_t> places_of(std::string_view key, std::string_view file, const std::vector<Column>& wanted,
                              std::span<const std::string> names) {
  std::vector<size_t> places;
  for (const Column& column : wanted) {
    const auto found = std::ranges::find(names, column.name);
    if (found == names.end()) refuse_column(file, column, wanted, names);
    if (std::find(found + 1, names.end(), column.name) != names.end())
      refuse_row(key, line_of(file, 1) + " has two columns " + quoted(column.name), "give one of them another name");
    places.push_back(static_cast<size_t>(found - names.begin()));
  }
  return places;
}

// libcsv, given a line of the file at a time so that lines are counted. No exception passes through it.
class CsvReader {
 public:
  CsvReader(std::string_view key, std::string_view file, char delimiter, bool quotes) : key_(key), file_(file) {
    if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) != 0) throw std::bad_alloc();
    csv_set_delim(&parser_, static_cast<unsigned char>(delimiter));
    csv_set_space_func(&parser_, [](unsigned char) { return 0; });  // blanks belong to a field
    if (!quotes) csv_set_quote(&parser_, 0xFF);                     // a byte that UTF-8 has nowhere
  }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;
  ~CsvReader() { csv_free(&parser_); }

  // row(line, fields) of each, the first too.
  void read(std::string_view text, const TakeRow& row) {
    size_t line = 1;
    while (!text.empty()) {
      const size_t end = std::min(text.find_first_of("\r\n"), text.size() - 1) + 1;
      const std::string_view piece = text.substr(0, end);
      text.remove_prefix(end);
      const bool is_blank = piece == "\n" || piece == "\r";
      if (!inside_) first_line_ = line;
      if (inside_ || !is_blank) feed(piece, line, row);
      if (piece.ends_with('\n') || (piece.ends_with('\r') && !text.starts_with('\n'))) ++line;
    }
    if (csv_fini(&parser_, put_field, end_row, this) != 0) refuse_open();
    rethrow();
    if (is_complete_) give(row);
  }

 private:
  void feed(std::string_view piece, size_t line, const TakeRow& row) {
    inside_ = true;
    if (csv_parse(&parser_, piece.data(), piece.size(), put_field, end_row, this) != piece.size()) {
      rethrow();
      if (csv_error(&parser_) != CSV_EPARSE) throw std::bad_alloc();
      refuse_row(key_,
                 line_of(file_, line) +
                     " has a quotation mark inside a field that does not begin with one, or "
                     "text behind a closing one",
                 "put the field into quotation marks and double those in it; quotes = false if they are letters");
    }
    rethrow();
    if (is_complete_) give(row);
  }
  void give(const TakeRow& row) {
    is_complete_ = inside_ = false;
    row(first_line_, {fields_.data(), n_});
    n_ = 0;
  }
  [[noreturn]] void refuse_open() const {
    refuse_row(key_, line_of(file_, first_line_) + " opens a quotation mark that is never closed",
               "close it; quotes = false if quotation marks are letters");
  }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }
  static void put_field(void* text, size_t size, void* self) noexcept {
    CsvReader& r = *static_cast<CsvReader*>(self);
    try {
      if (r.n_ == r.fields_.size()) r.fields_.emplace_back();
      r.fields_[r.n_++].assign(static_cast<const char*>(text), size);
    } catch (...) {
      r.thrown_ = std::current_exception();
    }
  }
  static void end_row(int, void* self) noexcept { static_cast<CsvReader*>(self)->is_complete_ = true; }

  std::string_view key_, file_;
  csv_parser parser_;
  std::vector<std::string> fields_;
  size_t n_ = 0, first_line_ = 1;
  bool inside_ = false, is_complete_ = false;  // a row has begun; it has ended
  std::exception_ptr thrown_;
};

void read_csv(std::string_view key, std::string_view file, std::string_view text, char delimiter, bool quotes,
              const std::vector<Column>& wanted, const TakeRow& take) {
  std::vector<size_t> places;
  std::vector<std::string> cells(wanted.size());
  size_t columns = 0;
  CsvReader(key, file, delimiter, quotes).read(text, [&](size_t line, std::span<const std::string> fields) {
    if (columns == 0) {
      columns = fields.size();
      places = places_of(key, file, wanted, fields);
      return;
    }
    if (fields.size() != columns)
      refuse_row(key,
                 line_of(file, line) + " has " + std::to_string(fields.size()) +
                     (fields.size() == 1 ? " field" : " fields") + ", the first line " + std::to_string(columns),
                 fields.size() < columns ? "fill in what is missing, or leave the row out"
                                         : "put a field that holds the separator into quotation marks");
    for (size_t i = 0; i < places.size(); ++i) cells[i] = fields[places[i]];
    take(line, cells);
  });
  if (columns == 0) refuse_row(key, name_of(file) + " is empty", "its first line names the columns");
}

// One line of JSONL as cells by name: null is an empty one, numbers and flags as they are written.
class JsonRow : public nlohmann::json_sax<Json> {
 public:
  static constexpr int kTooLarge = 406;  // nlohmann-json's number of this error

  bool is_object = false;
  std::map<std::string, std::optional<std::string>> cells;  // nothing: a list or an object
  std::set<std::string> twice;                              // names of more than one cell
  size_t error_at = 0;                                      // the byte where it is no JSON
  int error = 0;

  bool null() override { return put(""); }
  bool boolean(bool flag) override { return put(flag ? "true" : "false"); }
  bool number_integer(number_integer_t n) override { return put(n == 0 ? "-0" : std::to_string(n)); }
  bool number_unsigned(number_unsigned_t n) override { return put(std::to_string(n)); }
  bool number_float(number_float_t, const string_t& written) override { return put(written); }
  bool string(string_t& text) override { return put(std::move(text)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override {
    if (depth_ == 0) is_object = true;
    return open();
  }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    name_ = std::move(name);
    if (cells.contains(name_)) twice.insert(name_);
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    error_at = at;
    error = e.id;
    return false;
  }

 private:
  bool put(std::optional<std::string> cell) {
    if (depth_ == 1 && is_object) cells[name_] = std::move(cell);
    return true;
  }
  bool open() {
    put(std::nullopt);
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::string name_;
  size_t depth_ = 0;
};

constexpr const char* kOneObject = "each line of JSONL is one object: {\"text\": \"…\", …}";

[[noreturn]] void refuse_json(std::string_view key, const std::string& where, const JsonRow& row) {
  if (row.error == JsonRow::kTooLarge) refuse_row(key, where + " has a number that is too large", "write it as a text");
  refuse_row(key, where + ":" + std::to_string(row.error_at) + " is no JSON", kOneObject);
}

void read_jsonl(std::string_view key, std::string_view file, std::string_view text, const std::vector<Column>& wanted,
                const TakeRow& take) {
  std::vector<std::string> cells(wanted.size());
  bool is_first = true;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == one.npos) continue;
    JsonRow row;
    if (!Json::sax_parse(one.begin(), one.end(), &row)) refuse_json(key, line_of(file, line), row);
    if (!row.is_object) refuse_row(key, line_of(file, line) + " is no JSON object", kOneObject);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto found = row.cells.find(wanted[i].name);
      if (found == row.cells.end() && is_first) {
        std::vector<std::string> names;
        for (const auto& [name, cell] : row.cells) names.push_back(name);
        refuse_column(file, wanted[i], wanted, names);
      }
      if (found == row.cells.end())
        refuse_row(key, line_of(file, line) + " has no " + quoted(wanted[i].name), "give it one, or leave the row out");
      if (row.twice.contains(wanted[i].name))
        refuse_row(key, line_of(file, line) + " has " + quoted(wanted[i].name) + " twice", "give one another name");
      if (!found->second)
        refuse_row(key, line_of(file, line) + ": " + quoted(wanted[i].name) + " is a list or an object, no text",
                   "write one text, number or flag into it");
      cells[i] = *found->second;
    }
    is_first = false;
    take(line, cells);
  }
}

std::string format_of(std::string_view file, std::string_view stated) {
  if (stated != "auto") return std::string(stated);
  const std::string extension = std::filesystem::path(file).extension().string();
  if (extension == ".csv") return "csv";
  if (extension == ".tsv" || extension == ".tab") return "tsv";
  if (extension == ".jsonl" || extension == ".ndjson") return "jsonl";
  config::refuse("format", name_of(file) + " does not say by its name what it is",
                 "format = \"csv\", \"tsv\" or \"jsonl\"");
}

}  // namespace

std::string line_of(std::string_view file, size_t line) { return name_of(file) + ":" + std::to_string(line); }

void refuse_row(std::string_view key, const std::string& why, const std::string& fix) {
  config::refuse({.code = "bad_table", .key = key, .why = why, .beside = "", .fix = fix});
}

void read_table(std::string_view key, std::string_view file, const TableFormat& format,
                const std::vector<Column>& wanted, const TakeRow& take) {
  const std::string kind = format_of(file, format.format), contents = files::contents(key, file);
  std::string_view text = contents;
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    refuse_row(key, name_of(file) + " is UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8");
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (kind == "jsonl") return read_jsonl(key, file, text, wanted, take);
  read_csv(key, file, text, kind == "csv" ? ',' : '\t', format.quotes, wanted, take);
}

}  // namespace mortise
