#include "core/manifest/toml.hpp"

namespace {
// Where toml++ asserts what a file can violate ("[=]" does), it would end the process, or, without asserts, assume the impossible.
struct ParserGaveUp {};
[[noreturn]] void give_up() { throw ParserGaveUp(); }
}  // namespace
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? (void)0 : give_up())
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/text.hpp"

namespace mortise {
namespace {

Diagnostic mistake(std::string code, std::string message, Position at, std::string fix) {
  Diagnostic d;
  d.code = std::move(code);
  d.message = std::move(message);
  d.positions = {std::move(at)};
  d.fixes = {std::move(fix)};
  return d;
}

Position position_in(std::string_view text, size_t offset, const std::string& file) {
  Position at{file, 1, 1, ""};
  for (size_t i = 0; i < offset;) {
    at.column = text[i] == '\n' ? 1 : at.column + 1;
    at.line += text[i] == '\n';
    i += std::max<size_t>(utf8_length(text.substr(i)), 1);
  }
  return at;
}

std::optional<Diagnostic> refuse_encoding(std::string_view text, const std::string& file) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    return mistake("not_utf8", "this file is UTF-16; TOML is UTF-8", {file, 1, 1, ""}, "iconv -f UTF-16 -t UTF-8 " + file);
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text.substr(i));
    if (length == 0) return mistake("not_utf8", "the bytes here are not UTF-8", position_in(text, i, file), "save the file as UTF-8");
    if (text[i] == '\0') return mistake("toml_syntax", "a zero byte: this is no text file", position_in(text, i, file), "name a TOML file");
    i += length;
  }
  return std::nullopt;
}

// Walks over strings and comments as a TOML parser does, and looks only at brackets and dots. Where the text is no TOML the two may part, but
// from there on the parser sees nothing any more: it stops at the first mistake.
class DepthScan {
 public:
  explicit DepthScan(std::string_view text) : text_(text) {}

  // Where the text is nested too deep.
  std::optional<size_t> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') skip_comment();
      else if (c == '"' || c == '\'') skip_string(c);
      else if (!step(c)) return at_;
      else ++at_;
    }
    return std::nullopt;
  }

 private:
  bool step(char c) {
    if (c == '.') return ++dots_ < kMostNesting;
    if (c == '[' || c == '{') ++brackets_;
    if (c == ']' || c == '}') brackets_ = std::max(brackets_ - 1, 0);
    if (std::strchr("[]{}=,\n", c) != nullptr) dots_ = 0;
    return brackets_ <= kMostNesting;
  }
  void skip_comment() { at_ = std::min(text_.find('\n', at_), text_.size()); }
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool multiline = text_.substr(at_).starts_with(three);
    at_ += multiline ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (quote == '"' && text_[at_] == '\\') ++at_;
      else if (multiline && text_.substr(at_).starts_with(three)) return skip_closing(quote);
      else if (!multiline && (text_[at_] == quote || text_[at_] == '\n')) return void(++at_);
    }
  }
  // Up to two quotes may stand before the three that close.
  void skip_closing(char quote) {
    for (int i = 0; i < 5 && at_ < text_.size() && text_[at_] == quote; ++i) ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
  int brackets_ = 0, dots_ = 0;
};

// The first line that begins like a header and goes on without a name: the one thing known to make the parser give up.
Position bad_header(std::string_view text, const std::string& file) {
  constexpr std::string_view kSpace = " \t";
  for (size_t line = 0; line < text.size(); line = std::min(text.find('\n', line), text.size() - 1) + 1) {
    const size_t at = text.find_first_not_of(kSpace, line);
    if (at == std::string_view::npos || text[at] != '[') continue;
    const size_t name = text.find_first_not_of(kSpace, text.substr(at).starts_with("[[") ? at + 2 : at + 1);
    if (name == std::string_view::npos || (std::strchr("_-\"'", text[name]) == nullptr && std::isalnum(static_cast<unsigned char>(text[name])) == 0)) return position_in(text, at, file);
  }
  return {file, 0, 0, ""};
}

class Converter {
 public:
  Converter(const std::string& file, Report& report) : file_(file), report_(report) {}

  std::optional<TomlTable> table(const toml::table& from, int depth) {
    TomlTable to;
    to.entries.reserve(from.size());
    for (auto&& [key, value] : from) {
      const toml::source_position& at = key.source().begin;
      std::optional<TomlNode> converted = node(value, depth + 1);
      if (!converted) return std::nullopt;
      to.entries.push_back({std::string(key.str()), static_cast<int>(at.line), static_cast<int>(at.column), std::move(*converted)});
    }
    std::ranges::sort(to.entries, {}, [](const TomlEntry& entry) { return std::pair(entry.line, entry.column); });
    return to;
  }

 private:
  std::optional<TomlNode> node(const toml::node& from, int depth) {
    TomlNode to;
    to.line = static_cast<int>(from.source().begin.line);
    to.column = static_cast<int>(from.source().begin.column);
    if (depth > kMostNesting) return refuse("nested_too_deep", "nested deeper than 16", to, "16 levels of tables, lists and dotted keys are allowed");
    if (const auto* flag = from.as_boolean()) to.data = flag->get();
    else if (const auto* integer = from.as_integer()) to.data = integer->get();
    else if (const auto* number = from.as_floating_point()) to.data = number->get();
    else if (const auto* text = from.as_string()) to.data = text->get();
    else if (const auto* list = from.as_array()) {
      TomlList elements;
      for (const toml::node& element : *list) {
        std::optional<TomlNode> converted = node(element, depth + 1);
        if (!converted) return std::nullopt;
        elements.push_back(std::move(*converted));
      }
      to.data = std::move(elements);
    } else if (const auto* inner = from.as_table()) {
      std::optional<TomlTable> converted = table(*inner, depth);
      if (!converted) return std::nullopt;
      to.data = std::move(*converted);
    } else {
      return refuse("toml_syntax", "dates and times are no values here", to, "write it as text, in quotes");
    }
    return to;
  }

  std::nullopt_t refuse(const char* code, const char* message, const TomlNode& at, const char* fix) {
    report_.add(mistake(code, message, position_of(file_, at), fix));
    return std::nullopt;
  }

  const std::string& file_;
  Report& report_;
};

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

std::optional<TomlTable> parse_toml(std::string_view text, const std::string& shown_name, Report& report) {
  const auto refuse = [&](Diagnostic d) {
    report.add(std::move(d));
    return std::nullopt;
  };
  if (text.size() > kMostFileBytes)
    return refuse(mistake("file_too_large", "a TOML file has at most 1 MiB here, this has more", {shown_name, 0, 0, ""}, "name a manifest"));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (std::optional<Diagnostic> d = refuse_encoding(text, shown_name)) return refuse(std::move(*d));
  if (const std::optional<size_t> at = DepthScan(text).run())
    return refuse(mistake("nested_too_deep", "nested deeper than 16", position_in(text, *at, shown_name), "16 levels of tables, lists and dotted keys are allowed"));

  const auto no_toml = [&](std::string_view what, int line, int column) {
    return refuse(mistake("toml_syntax", "this is no TOML: " + std::string(what), {shown_name, line, column, ""}, "text stands in quotes, a list in [ ], and each key and table once"));
  };
  try {
    const toml::parse_result parsed = toml::parse(text, std::string_view(shown_name));
    if (parsed) return Converter(shown_name, report).table(parsed.table(), 0);
    std::string_view what = parsed.error().description();
    constexpr std::string_view kPrefix = "Error while parsing ";
    if (what.starts_with(kPrefix)) what.remove_prefix(kPrefix.size());
    const toml::source_position& at = parsed.error().source().begin;
    return no_toml(what, static_cast<int>(at.line), static_cast<int>(at.column));
  } catch (const ParserGaveUp&) {
    const Position at = bad_header(text, shown_name);
    return no_toml("a table's header is [NAME] or [NAME.NAME]", at.line, at.column);
  }
}

std::optional<TomlTable> read_toml(const std::string& path, const std::string& shown_name, Report& report, std::string* text) {
  const auto refuse = [&](const char* code, const std::string& message, int exit) {
    Diagnostic d = mistake(code, message, {shown_name, 0, 0, ""}, "name a TOML file that can be read");
    d.exit = exit;
    report.add(std::move(d));
    return std::nullopt;
  };
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return refuse("file_missing", "no file `" + shown_name + "`", kExitUsage);
  // A pipe would never end, a folder never begin.
  if (!std::filesystem::is_regular_file(path, error)) return refuse("cannot_read", "`" + shown_name + "` is no file", kExitUsage);
  std::ifstream in(path, std::ios::binary);
  if (!in) return refuse("cannot_read", "`" + shown_name + "` cannot be opened: " + std::strerror(errno), kExitIo);
  std::string bytes(kMostFileBytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  if (in.bad()) return refuse("cannot_read", "`" + shown_name + "` cannot be read: " + std::strerror(errno), kExitIo);
  std::optional<TomlTable> parsed = parse_toml(bytes, shown_name, report);
  if (text != nullptr) *text = std::move(bytes);
  return parsed;
}

std::optional<Value> plain_value(const TomlNode& node, const Position& origin) {
  Value value;
  value.origin = origin;
  if (node.line > 0) value.origin.line = node.line, value.origin.column = node.column;
  if (const auto* flag = std::get_if<bool>(&node.data)) value.data = *flag;
  else if (const auto* integer = std::get_if<int64_t>(&node.data)) value.data = *integer;
  else if (const auto* number = std::get_if<double>(&node.data)) value.data = *number;
  else if (const std::string* text = node.text()) value.data = *text;
  else if (const TomlList* list = node.list()) {
    std::vector<Value> elements;
    for (const TomlNode& element : *list) {
      std::optional<Value> converted = plain_value(element, origin);
      if (!converted) return std::nullopt;
      elements.push_back(std::move(*converted));
    }
    value.data = std::move(elements);
  } else {
    return std::nullopt;
  }
  return value;
}

}  // namespace mortise
