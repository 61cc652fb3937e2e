// TOML as a light tree of our own, with the position of every key and value. The parser (toml++) is seen by one source
// file only, after a scan of its own that refuses what would crash it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  Position at;        // without a key; of a table: its header
  std::string typed;  // on the command line: the characters, so that a text may look like a number

  bool is_table() const { return std::holds_alternative<TomlTable>(data); }
  const TomlTable* table() const { return std::get_if<TomlTable>(&data); }
  const TomlList* list() const { return std::get_if<TomlList>(&data); }
  const std::string* text() const { return std::get_if<std::string>(&data); }
  const char* kind() const;  // "text", "a number", … for messages
};

struct TomlEntry {
  std::string key;
  Position at;
  TomlNode value;
};

// The tree of a text, or nothing and a diagnostic: toml_syntax, not_utf8, file_too_large, nested_too_deep. `shown_name`
// is what positions say.
std::optional<TomlTable> parse_toml(std::string_view text, const std::string& shown_name, Report& report);

// parse_toml of a file; `cannot_read` besides. The text itself goes to `text` if given, also when it is no TOML.
std::optional<TomlTable> read_toml(const std::string& path, const std::string& shown_name, Report& report,
                                   std::string* text = nullptr);

// Where the key of this name has its value.
inline Position keyed(Position at, std::string key) {
  at.key = std::move(key);
  return at;
}

// The value without a schema, of the key of this name; nothing for a table or a list that holds one.
std::optional<Value> plain_value(const TomlNode& node, const std::string& key);

}  // namespace mortise
