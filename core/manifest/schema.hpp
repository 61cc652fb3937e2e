// What may stand in a table: read from plugin.toml's [config.*] and, for the core's and the families' tables, from core_schema.toml.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/manifest/value.hpp"

namespace mortise {

struct KeySchema {
  std::string name;
  std::string type;  // bool int float string choice path id list<T> duration amount bytes dtype where metric env
  Value standard;    // the default; not set: none
  std::optional<double> min, max;
  std::vector<std::string> choices, aka;
  std::string doc;
  std::string change = "fixed";  // free numeric fixed
};

struct TableSchema {
  std::map<std::string, KeySchema> keys;
  std::map<std::string, std::map<std::string, Value>> presets;  // [preset.NAME]
};

// The part of plugin.toml that a manifest is checked against.
struct PluginSchema {
  std::string id, family, name, summary;
  std::vector<std::string> provides;   // points
  std::vector<std::string> exclusive;  // groups of which one member may stand at each place
  TableSchema config;
  std::map<std::string, Value> family_defaults;
};

}  // namespace mortise
