// TOML as a light tree of our own, with the position of every key and value. The parser (toml++) is seen by one source file only, after a scan of
// its own that refuses what would crash it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/manifest/value.hpp"

namespace mortise {

inline constexpr size_t kMostFileBytes = 1 << 20;
inline constexpr int kMostNesting = 16;  // of tables, lists, and the parts of a dotted key

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
  int line = 0, column = 0;  // of a table: its header
  std::string typed;         // on the command line: the characters, so that a text may look like a number

  bool is_table() const { return std::holds_alternative<TomlTable>(data); }
  const TomlTable* table() const { return std::get_if<TomlTable>(&data); }
  const TomlList* list() const { return std::get_if<TomlList>(&data); }
  const std::string* text() const { return std::get_if<std::string>(&data); }
  const char* kind() const;  // "text", "a number", … for messages
};

struct TomlEntry {
  std::string key;
  int line = 0, column = 0;
  TomlNode value;
};

// The tree of a text, or nothing and a diagnostic: toml_syntax, not_utf8, file_too_large, nested_too_deep. `shown_name` is what positions say.
std::optional<TomlTable> parse_toml(std::string_view text, const std::string& shown_name, Report& report);

// parse_toml of a file; `file_missing`, `cannot_read` besides. The text itself goes to `text` if given, also when it is no TOML.
std::optional<TomlTable> read_toml(const std::string& path, const std::string& shown_name, Report& report, std::string* text = nullptr);

// The value without a schema; nothing for a table or a list that holds one.
std::optional<Value> plain_value(const TomlNode& node, const Position& origin);

// Where a key or a value stands. On the command line nothing has a line.
template <class Placed>
Position position_of(const std::string& file, const Placed& placed, std::string key = {}) {
  if (file.starts_with("command line")) return {file, 0, 0, std::move(key)};
  return {file, placed.line, placed.column, std::move(key)};
}

}  // namespace mortise
