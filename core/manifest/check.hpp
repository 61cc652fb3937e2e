// One value against its schema.
#pragma once
#include <optional>
#include <string>

#include "core/manifest/schema.hpp"

namespace mortise {

// The value of `key` ("optimizer.lr") in the form that its type has, or nothing and a diagnostic: wrong_type,
// out_of_range, not_a_choice, secret_in_manifest. Paths are left as written: what they mean depends on the machine, and
// a layer above may replace them (resolve_paths).
std::optional<Value> check_value(const KeySchema& schema, const TomlNode& node, const std::string& key, Report& report);

// What to write there: "lr = 3e-4", or on the command line "--set optimizer.lr=3e-4".
std::string assignment(const Position& at, const std::string& value);

// What to write instead of a type that is none.
std::string nearest_type(const std::string& type);
bool is_known_type(const std::string& type);
bool is_path_type(const std::string& type);
bool is_name(std::string_view text);  // [a-z][a-z0-9_]*
bool is_id(std::string_view text);    // NAME.NAME, a plugin's

}  // namespace mortise
