// What plugin.toml says, and where the plugin lies. No code of the plugin runs to learn this.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/manifest/schema.hpp"
#include "formats/huggingface/mapping.hpp"

namespace mortise {

struct WrapInfo {
  std::string point, band;
  bool capture = false;
  Position origin;
  std::vector<std::string> modes;  // it is called in these alone; empty: in all that the plugin's table leaves it
  bool optional = false;           // in a run without such an operator there is nothing to wrap, which is no mistake
};
struct ListenInfo {
  std::string point;
  std::vector<std::string> reads, writes;
  bool capture = false;
  bool everywhere = false;  // `where` of the plugin's table does not narrow what this listener is told
  Position origin;
};
struct ConflictInfo {
  std::string with, why, fix;  // `with`: a capability or a plugin's id
  Position origin;
};
struct OperatorRow {  // [operator.NAME]: a point that this plugin adds to the table
  std::string name, arguments, results, doc;
  std::vector<std::string> dtypes = {};  // of each result: kResultDtypes; fewer than results: any
};
// What [operator.NAME] dtypes says of a result: the type that the call computes in; that of the weights; that to which
// the arguments are promoted; single precision, or double of double; nothing.
inline constexpr const char* kResultDtypes[] = {"compute", "weight", "arguments", "statistics", "any"};

struct PluginInfo {
  PluginSchema schema;
  std::string version, status, source, tier = "portable", abi;
  std::string change;  // "free": who comes or goes changes no number of a run; "": as its points say
  std::vector<WrapInfo> wraps;
  std::vector<ListenInfo> listens;
  std::vector<OperatorRow> operators;
  std::vector<std::string> chooses;  // [points] chooses: a provider that picks one of these at each place by `supports`
  std::vector<std::string> capabilities, requires_, syncs, after, before;
  std::string
      equals;  // [capabilities] equals: what a run with it equals; "exact", "1e-4" (losses), "other"; "": unsaid
  std::vector<std::string> devices;  // [capabilities] devices: that the whole plugin works on; empty: any
  std::vector<ConflictInfo> conflicts;
  std::vector<std::string> links;  // [links] allow: vendor libraries beyond the tier's
  std::map<std::string, std::map<std::string, Value>>
      facts;  // [optimizer] cut = …, [data] threads = …, [frame] compute_dtype = …, [advice] text = …
  huggingface::Mapping huggingface;  // a model's names in other people's files
  std::string folder, library, toml_path, toml_text;
};

// A static fact, or NULL if plugin.toml does not state it.
const Value* fact_of(const PluginInfo& info, const std::string& table, const std::string& key);

// Those of a fact that is a list; none if plugin.toml does not state it.
std::vector<std::string> texts_of_fact(const PluginInfo& info, const std::string& table, const std::string& key);

// One plugin.toml, as scan_plugins reads it. `id` is what file or folder are called; "": whatever the file says.
// Nothing after an error.
std::optional<PluginInfo> read_plugin_info(const std::string& toml_path, const std::string& id, Report& report);

// Every plugin found in `folders` (each: a library FAMILY.NAME.so with FAMILY.NAME.toml beside it, that .toml alone,
// whose library is then missing, or a folder FAMILY.NAME holding both or a plugin.toml). A plugin.toml that cannot be
// read, or one id found twice, goes to the report.
std::map<std::string, PluginInfo> scan_plugins(const std::vector<std::string>& folders, Report& report);

}  // namespace mortise
