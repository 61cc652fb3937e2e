#include "core/manifest/toml.hpp"

namespace {
// Where toml++ asserts what a file can violate ("[=]" does), it would end the process, or, without asserts, assume the
// impossible.
struct ParserGaveUp {};
[[noreturn]] void give_up() { throw ParserGaveUp(); }
}  // namespace
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? (void)0 : give_up())
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/text.hpp"

namespace mortise {
namespace {

Position position_in(std::string_view text, size_t offset, const std::string& file) {
  Position at{file, 1, 1, ""};
  for (size_t i = 0; i < offset;) {
    at.column = text[i] == '\n' ? 1 : at.column + 1;
    at.line += text[i] == '\n';
    i += std::max<size_t>(utf8_length(text.substr(i)), 1);
  }
  return at;
}

constexpr const char* kSyntaxFix = "text stands in quotes, a list in [ ], and each key and table once";

Failure syntax(const std::string& what, Position at, const char* fix = kSyntaxFix) {
  return Failure(mistake("toml_syntax", what, std::move(at), fix));
}
Failure too_deep(Position at) {
  return Failure(mistake("nested_too_deep", "nested deeper than 16", std::move(at),
                         "16 levels of tables, lists and dotted keys are allowed"));
}

void refuse_encoding(std::string_view text, const std::string& file) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    throw Failure(mistake("not_utf8", "this file is UTF-16; TOML is UTF-8", {file, 1, 1, ""},
                          "iconv -f UTF-16 -t UTF-8 " + file));
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text.substr(i));
    if (length == 0)
      throw Failure(
          mistake("not_utf8", "the bytes here are not UTF-8", position_in(text, i, file), "save the file as UTF-8"));
    if (text[i] == '\0')
      throw syntax("a zero byte: this is no text file", position_in(text, i, file), "name a TOML file");
    i += length;
  }
}

// Goes over strings and comments as a TOML parser does, and refuses what toml++ does not survive: depth, headers
// without a name, and characters beyond ASCII outside of quotes. Where the text is no TOML the two may part, but from
// there on the parser sees nothing any more: it stops at the first mistake.
class Scan {
 public:
  Scan(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == '"' || c == '\'') skip_string(c);
      else step(c);
    }
  }

 private:
  void step(char c) {
    if (static_cast<unsigned char>(c) >= 0x80)
      throw syntax("this is no TOML: a character beyond a-z A-Z 0-9 _ - outside of quotes", here(),
                   "put it in quotes, or look for a space that is none");
    if (c == '[' && brackets_ == 0 && line_is_empty_) check_header();
    if (c == '.' && ++dots_ >= kMostNesting) throw too_deep(here());
    if ((c == '[' || c == '{') && ++brackets_ > kMostNesting) throw too_deep(here());
    if (c == ']' || c == '}') brackets_ = std::max(brackets_ - 1, 0);
    if (std::strchr("[]{}=,\n", c) != nullptr) dots_ = 0;
    if (c != ' ' && c != '\t') line_is_empty_ = c == '\n';
    ++at_;
  }
  void check_header() {
    const size_t name = text_.find_first_not_of(" \t", text_.substr(at_).starts_with("[[") ? at_ + 2 : at_ + 1);
    const char first = name < text_.size() ? text_[name] : '\n';
    if (std::strchr("_-\"'", first) == nullptr && std::isalnum(static_cast<unsigned char>(first)) == 0)
      throw syntax("this is no TOML: a table's header is [NAME] or [NAME.NAME]", here());
  }
  // To behind the string that begins here. Up to two more quotes may stand before the three that close.
  void skip_string(char quote) {
    line_is_empty_ = false;
    const bool multiline = text_.substr(at_).starts_with(std::string(3, quote));
    const std::string closing(multiline ? 3 : 1, quote);
    at_ += closing.size();
    while (at_ < text_.size() && !text_.substr(at_).starts_with(closing) && (multiline || text_[at_] != '\n'))
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + closing.size(), text_.size());
    for (int more = 0; more < 2 && multiline && at_ < text_.size() && text_[at_] == quote; ++more) ++at_;
  }
  Position here() const { return position_in(text_, at_, file_); }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int brackets_ = 0, dots_ = 0;
  bool line_is_empty_ = true;
};

Position position_of(const toml::source_region& from, const std::string& file) {
  return {file, static_cast<int>(from.begin.line), static_cast<int>(from.begin.column), ""};
}

TomlTable convert(const toml::table& from, const std::string& file, int depth);

TomlNode convert(const toml::node& from, const std::string& file, int depth) {
  TomlNode to;
  to.at = position_of(from.source(), file);
  if (depth > kMostNesting) throw too_deep(to.at);
  from.visit([&](const auto& value) {
    using T = decltype(value);
    if constexpr (toml::is_table<T>) {
      to.data = convert(value, file, depth);
    } else if constexpr (toml::is_array<T>) {
      TomlList& elements = to.data.emplace<TomlList>();
      for (const toml::node& element : value) elements.push_back(convert(element, file, depth + 1));
    } else if constexpr (toml::is_chronological<T>) {
      throw syntax("dates and times are no values here", to.at, "write it as text, in quotes");
    } else {
      to.data = value.get();
    }
  });
  return to;
}

TomlTable convert(const toml::table& from, const std::string& file, int depth) {
  TomlTable to;
  for (auto&& [key, value] : from)
    to.entries.push_back({std::string(key.str()), position_of(key.source(), file), convert(value, file, depth + 1)});
  std::ranges::sort(to.entries, {}, [](const TomlEntry& entry) { return std::pair(entry.at.line, entry.at.column); });
  return to;
}

}  // namespace

const TomlNode* TomlTable::find(std::string_view key) const {
  for (const TomlEntry& entry : entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

const TomlNode* TomlTable::find(std::string_view first, std::string_view second) const {
  const TomlNode* outer = find(first);
  return outer != nullptr && outer->is_table() ? outer->table()->find(second) : nullptr;
}

const char* TomlNode::kind() const {
  const char* const kinds[] = {"true or false", "a number", "a number", "text", "a list", "a table"};
  return kinds[data.index()];
}

std::optional<TomlTable> parse_toml(std::string_view text, const std::string& file, Report& report) try {
  if (text.size() > kMostFileBytes)
    throw Failure(mistake("file_too_large", "a TOML file has at most 1 MiB here, this has more", {file, 0, 0, ""},
                          "name a manifest"));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  refuse_encoding(text, file);
  Scan(text, file).run();
  const toml::parse_result parsed = toml::parse(text, std::string_view(file));
  if (parsed) return convert(parsed.table(), file, 0);
  std::string what(parsed.error().description());
  if (constexpr std::string_view kPrefix = "Error while parsing "; what.starts_with(kPrefix))
    what.erase(0, kPrefix.size());
  throw syntax("this is no TOML: " + what, position_of(parsed.error().source(), file));
} catch (const Failure& failure) {
  report.add(failure.diagnostic);
  return std::nullopt;
} catch (const ParserGaveUp&) {
  report.add(syntax("this is no TOML: the parser gave up", {file, 0, 0, ""}).diagnostic);
  return std::nullopt;
}

std::optional<TomlTable> read_toml(const std::string& path, const std::string& shown_name, Report& report,
                                   std::string* text) {
  std::error_code error;
  // A pipe would never end, a folder never begin.
  std::ifstream in;
  if (std::filesystem::is_regular_file(path, error)) in.open(path, std::ios::binary);
  std::string bytes(kMostFileBytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in.is_open() || in.bad()) {
    Diagnostic d = mistake("cannot_read", "`" + shown_name + "` cannot be read", {shown_name, 0, 0, ""},
                           "name a TOML file that can be read");
    d.exit = kExitIo;
    report.add(std::move(d));
    return std::nullopt;
  }
  bytes.resize(static_cast<size_t>(in.gcount()));
  std::optional<TomlTable> parsed = parse_toml(bytes, shown_name, report);
  if (text != nullptr) *text = std::move(bytes);
  return parsed;
}

std::optional<Value> plain_value(const TomlNode& node, const std::string& key) {
  if (node.is_table()) return std::nullopt;
  Value value{{}, keyed(node.at, key)};
  if (const TomlList* list = node.list()) {
    std::vector<Value>& elements = value.data.emplace<std::vector<Value>>();
    for (const TomlNode& element : *list)
      if (std::optional<Value> converted = plain_value(element, key)) elements.push_back(std::move(*converted));
    return elements.size() == list->size() ? std::optional(std::move(value)) : std::nullopt;
  }
  std::visit(
      [&](const auto& data) {
        if constexpr (std::is_assignable_v<decltype(value.data)&, decltype(data)>) value.data = data;
      },
      node.data);
  return value;
}

}  // namespace mortise
