// A manifest: layers of TOML put together, checked against the schemas, every value with its source. No plugin code
// runs and nothing is decided here about who provides what: that is the plan's.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/manifest/schema.hpp"

namespace mortise {

// One table [family.name] after all layers, with every key of its schema: default < preset < layers.
struct PluginTable {
  const PluginSchema* schema = nullptr;
  Position origin;  // of the table in the highest layer that has it
  int layer = 0;    // higher ones take places from lower ones; the command line is the highest
  bool enabled = true;
  std::optional<Selector> where;
  std::vector<int> modes;             // 0 train, 1 eval, 2 sample; empty: all
  std::vector<std::string> fallback;  // only if the highest layer wrote it
  std::vector<std::string> off;       // it named these too, which are switched off
  std::map<std::string, Value> values;
};

// One table [parameters.NAME]; keys as core_schema.toml says.
struct ParameterRule {
  std::string name;
  Selector where;
  int layer = 0;
  std::map<std::string, Value> values;  // only what was written
  Position origin;
};

struct Manifest {
  std::string name;                 // run.name or the file's stem
  std::string path;                 // as typed
  std::vector<std::string> layers;  // "default.toml", …, "gpt2.toml", "command line"
  std::map<std::string, std::map<std::string, Value>>
      tables;                        // core and family tables, complete: tables["run"]["length"]
  std::vector<PluginTable> plugins;  // in the order of their ids
  std::vector<ParameterRule> rules;
  std::set<std::string> unread;  // of the request's `refused`, those that a layer or --use switches on
  // What the command line switches off, and what says so: "--without ID", "--set ID.enabled=false".
  std::map<std::string, std::string> refused;
  const Value& get(const std::string& table, const std::string& key) const { return tables.at(table).at(key); }
};

struct ManifestRequest {
  std::string file;                 // the run manifest; "" is allowed when only plugins are listed
  std::optional<std::string> text;  // what it says, if the caller has read it; positions still name `file`
  bool recorded = false;     // it is a run.toml: whole without default_file, and a pattern without files stays as it is
  std::string default_file;  // default.toml
  std::string shipped_dir;   // where "mortise:NAME" includes are found as NAME.toml
  std::vector<std::string> includes;                               // --include
  std::vector<std::string> set, use, without;                      // --set K=V, --use ID, --without ID, in order
  const std::map<std::string, PluginSchema>* catalogue = nullptr;  // by id
  std::vector<std::string> searched;                               // folders that the catalogue came from, for errors
  std::set<std::string> refused;  // ids whose plugin.toml was refused: their tables are passed over
};

// Reads, merges and checks. Every mistake that can be found goes to `report`; the result is only meaningful without
// errors.
Manifest read_manifest(const ManifestRequest& request, Report& report);

// The folders that a manifest's [plugins] path names (absolute), read before the catalogue exists. Mistakes are left to
// read_manifest.
std::vector<std::string> plugin_paths_of(const ManifestRequest& request);

}  // namespace mortise
