// TOML (formats/toml) for manifests: mistakes go to a report, places become positions, plain nodes become values.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/diagnostic.hpp"
#include "core/manifest/value.hpp"
#include "formats/toml/toml.hpp"

namespace mortise {

// `key`: which one has its value there, for --json.
inline Position position(const TomlPlace& at, std::string key = {}) {
  return {at.file, at.line, at.column, std::move(key)};
}
inline Position keyed(Position at, std::string key) {
  at.key = std::move(key);
  return at;
}

// The tree of a text, or nothing and a diagnostic.
std::optional<TomlTable> parse_toml(std::string_view text, const std::string& shown_name, Report& report);

// parse_toml of a file; `cannot_read` besides. The text itself goes to `text` if given, also when it is no TOML.
std::optional<TomlTable> read_toml(const std::string& path, const std::string& shown_name, Report& report,
                                   std::string* text = nullptr);

// The value without a schema, of the key of this name; nothing for a table or a list that holds one.
std::optional<Value> plain_value(const TomlNode& node, const std::string& key);

}  // namespace mortise
