// What may stand in a table: read from plugin.toml's [config.*] and, for the core's and the families' tables, from
// core_schema.toml.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/manifest/toml.hpp"
#include "core/manifest/value.hpp"

namespace mortise {

struct Deprecation {
  std::string since, use, remove;  // versions, and what to write instead
};

struct KeySchema {
  std::string name;
  std::string type;     // bool int float string choice path id list<T> duration amount bytes dtype where metric env
  Value default_value;  // the default; not set: none
  std::optional<double> min, max, exclusive_min;  // exclusive_min: more than this
  std::vector<std::string> choices, aka;          // of a duration, the choices are the units that it may have
  std::string doc;
  std::string change = "fixed";  // free numeric fixed
  std::string same_as;           // core tables only: without a value, that of this key
  bool per_provider = false;     // families only: of several providers that are on, each may say its own
  std::optional<Deprecation> deprecated;
};

struct TableSchema {
  std::map<std::string, KeySchema> keys;
  std::map<std::string, std::map<std::string, Value>> presets;  // [preset.NAME]
};

// The part of plugin.toml that a manifest is checked against.
// A mistake of which a plugin tells under a code of its own, [errors.CODE] of plugin.toml.
struct OwnError {
  std::string meaning;
  bool of_data = false;  // exit 65; else the manifest's, 64
};

struct PluginSchema {
  std::string id, family, name, summary;
  std::vector<std::string> provides;   // points
  std::vector<std::string> exclusive;  // groups of which one member may stand at each place
  TableSchema config;
  std::map<std::string, Value> family_defaults;
  std::map<std::string, OwnError> errors;  // by code
};

// The tables that the core owns, from core_schema.toml, which is part of the binary.
struct CoreSchema {
  std::map<std::string, TableSchema> tables;  // [run], [optimizer], …
  TableSchema rule;                           // [parameters.NAME]
  TableSchema reserved;                       // what the host reads in every plugin's table: enabled, where, …
  std::vector<std::string> later;             // "data.padding": keys of the design that this version does not read
  bool is_family(const std::string& table) const;
};
const CoreSchema& core_schema();

// Reads [config.*], [preset.*] and [family_defaults] of a plugin.toml into `schema`, whose id and family are set.
// Mistakes are `schema_broken`.
void read_plugin_schema(const TomlTable& plugin_toml, PluginSchema& schema, Report& report);

}  // namespace mortise
