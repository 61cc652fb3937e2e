// What plugin.toml says, and where the plugin lies. No code of the plugin runs to learn this.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/manifest/schema.hpp"

namespace mortise {

struct WrapInfo {
  std::string point, band;
  bool capture = false;
};
struct ListenInfo {
  std::string point;
  std::vector<std::string> reads, writes;
  bool capture = false;
};
struct ConflictInfo {
  std::string with, why, fix;   // `with`: a capability or a plugin's id
};
struct OperatorRow {            // [operator.NAME]: a point that this plugin adds to the table
  std::string name, arguments, results, doc;
};

struct PluginInfo {
  PluginSchema schema;
  std::string version, status, source, tier = "portable", abi;
  std::vector<WrapInfo> wraps;
  std::vector<ListenInfo> listens;
  std::vector<OperatorRow> operators;
  std::vector<std::string> chooses;      // [points] chooses: a provider that picks one of these at each place by `supports`
  std::vector<std::string> capabilities, requires_, syncs, after, before;
  std::vector<ConflictInfo> conflicts;
  std::vector<std::string> links;        // [links] allow: vendor libraries beyond the tier's
  std::map<std::string, std::map<std::string, Value>> facts;  // [optimizer] cut = …, [data] threads = …, [model] context = …
  std::string folder, library, toml_path, toml_text;
};

// Every plugin found in `folders` (each: a library FAMILY.NAME.so with FAMILY.NAME.toml beside it, or a folder FAMILY.NAME holding both or a plugin.toml).
// A plugin.toml that cannot be read, or one id found twice, goes to the report.
std::map<std::string, PluginInfo> scan_plugins(const std::vector<std::string>& folders, Report& report);

}  // namespace mortise
