// TOML as a light tree, with the position of every key and value. The parser (toml++) is seen by one source file only,
// after a scan of its own that refuses what would crash it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "formats/file.hpp"

namespace mortise {

inline constexpr size_t kMostTomlBytes = 1 << 20;
inline constexpr int kMostTomlNesting = 16;  // of tables, lists, and the parts of a dotted key

// Where something stands. Without a line: the file as a whole.
struct TomlPlace {
  std::string file;  // the name that the caller gave
  int line = 0, column = 0;
};

struct TomlEntry;
struct TomlNode;
using TomlList = std::vector<TomlNode>;

// Keys in the order of the file.
struct TomlTable {
  std::vector<TomlEntry> entries;
  const TomlNode* find(std::string_view key) const;
  const TomlNode* find(std::string_view first, std::string_view second) const;
};

struct TomlNode {
  std::variant<bool, int64_t, double, std::string, TomlList, TomlTable> data;
  TomlPlace at;  // of a table: its header
  std::string
      typed;  // set by who makes a node of what was typed: the characters, so that a text may look like a number

  bool is_table() const { return std::holds_alternative<TomlTable>(data); }
  const TomlTable* table() const { return std::get_if<TomlTable>(&data); }
  const TomlList* list() const { return std::get_if<TomlList>(&data); }
  const std::string* text() const { return std::get_if<std::string>(&data); }
  const char* kind() const;  // "text", "a number", … for messages
};

struct TomlEntry {
  std::string key;
  TomlPlace at;
  TomlNode value;
};

// The code is toml_syntax, not_utf8, file_too_large or nested_too_deep.
struct TomlError : FormatError {
  TomlPlace at;
  std::optional<TomlPlace> first;  // of what stands there again
  std::string fix;
  TomlError(std::string c, std::string m, TomlPlace where, std::string f)
      : FormatError(std::move(c), where.file, std::move(m)), at(std::move(where)), fix(std::move(f)) {}
};

// The tree of a text; places say `name`. Throws TomlError.
TomlTable parse_toml(std::string_view text, const std::string& name);

}  // namespace mortise
