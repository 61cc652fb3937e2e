#include "core/manifest/manifest.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/manifest/layers.hpp"
#include "core/manifest/merge.hpp"
#include "core/manifest/path.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise {
namespace {

constexpr std::string_view kRule = "parameters.";
constexpr size_t kLongestLine = 160;

// The line under a position, where seeing it helps. Never for a secret.
void show_lines(std::vector<Diagnostic>& all, const std::map<std::string, std::vector<std::string>>& lines) {
  for (Diagnostic& d : all) {
    if (d.positions.empty() || (d.code != "wrong_type" && d.code != "value_for_table" && d.code != "toml_syntax")) continue;
    const auto file = lines.find(d.positions[0].file);
    const size_t line = static_cast<size_t>(d.positions[0].line);
    if (file == lines.end() || line < 1 || line > file->second.size() || file->second[line - 1].size() > kLongestLine) continue;
    d.source_line = file->second[line - 1];
    if (d.source_line.ends_with('\r')) d.source_line.pop_back();
  }
}

// In the order in which people read their files: lowest layer first, then by line; what has no line as it was found.
void sort_by_place(std::vector<Diagnostic>& all, const std::vector<Layer>& layers) {
  const auto place = [&](const Diagnostic& d) {
    if (d.positions.empty()) return std::tuple(layers.size() + 1, 0, 0);
    const Position& at = d.positions.front();
    const auto layer = std::ranges::find(layers, at.file, &Layer::name);
    return std::tuple(static_cast<size_t>(layer - layers.begin()), at.line, at.column);
  };
  std::ranges::stable_sort(all, {}, place);
}

void warn_of_doubles(const std::vector<Setting>& settings, Report& report) {
  std::set<std::string> seen;
  for (const Setting& setting : settings) {
    const std::string key = join(setting.path, ".");
    if (seen.insert(key).second) continue;
    Diagnostic d = mistake("set_twice", key + " is set twice; the last one counts", {setting.file, 0, 0, key});
    d.level = Level::kWarning;
    report.add(std::move(d));
  }
}

const Written* written_in(const MergedTable& table, const std::string& key) {
  const auto found = table.keys.find(key);
  return found == table.keys.end() ? nullptr : &found->second;
}

// From merged tables to a manifest: defaults, presets, paths, rules.
class Completion {
 public:
  Completion(const Merger& merged, const Vocabulary& words, const std::vector<Layer>& layers, Report& report)
      : merged_(merged), words_(words), layers_(layers), report_(report) {}

  void core_tables(Manifest& manifest) {
    for (const auto& [name, schema] : core_schema().tables) {
      const auto table = merged_.tables.find(name);
      for (const auto& [key, key_schema] : schema.keys) {
        const Written* written = table != merged_.tables.end() ? written_in(table->second, key) : nullptr;
        manifest.tables[name][key] = written != nullptr ? resolved(*written) : key_schema.standard;
      }
    }
    for (const auto& [name, schema] : core_schema().tables)
      for (const auto& [key, key_schema] : schema.keys) {
        Value& value = manifest.tables[name][key];
        if (value.is_set() || key_schema.same_as.empty()) continue;
        const std::vector<std::string> other = split(key_schema.same_as, '.');
        value = manifest.get(other[0], other[1]);
      }
  }

  // Its keys are points, which only the plan knows.
  void order(Manifest& manifest) {
    manifest.tables.erase("order");
    if (const auto table = merged_.tables.find("order"); table != merged_.tables.end())
      for (const auto& [point, written] : table->second.keys) manifest.tables["order"][point] = written.value;
  }

  void plugins(Manifest& manifest) {
    for (const auto& [id, table] : merged_.tables)
      if (const PluginSchema* schema = words_.plugin(id)) manifest.plugins.push_back(plugin(id, *schema, table));
  }

  void rules(Manifest& manifest) {
    for (const auto& [id, table] : merged_.tables)
      if (id.starts_with(kRule) && table.enabled) rule(manifest, id, table);
  }

 private:
  PluginTable plugin(const std::string& id, const PluginSchema& schema, const MergedTable& table) {
    PluginTable out;
    out.schema = &schema;
    out.origin = table.origin;
    out.layer = table.layer;
    out.enabled = table.enabled;
    // What is off or replaced may point to files that are not there.
    const bool counts = table.enabled && merged_.replaced_by(id).empty();
    for (const auto& [key, key_schema] : schema.config.keys) out.values[key] = key_schema.standard;
    for (const auto& [key, value] : preset_of(schema.config, table)) out.values[key] = value;
    for (auto& [key, value] : out.values)
      if (counts && is_path_type(schema.config.keys.at(key).type) && value.is_set()) resolve_paths(value, current_folder(), report_);
    for (const auto& [key, written] : table.keys)
      if (out.values.contains(key)) out.values[key] = counts ? resolved(written) : written.value;
    if (const Written* where = written_in(table, "where")) out.where = where->value.as_selector();
    if (const Written* modes = written_in(table, "modes"))
      for (const std::string& mode : modes->value.as_texts())
        out.modes.push_back(static_cast<int>(std::ranges::find(modes->schema->choices, mode) - modes->schema->choices.begin()));
    // Not inherited: below, it was written for other circumstances.
    const Written* fallback = written_in(table, "fallback");
    if (fallback != nullptr && fallback->layer == table.layer) out.fallback = fallback->value.as_texts();
    return out;
  }

  // What the preset says that is written, or is the default of the key `preset`.
  static std::map<std::string, Value> preset_of(const TableSchema& schema, const MergedTable& table) {
    const auto selects = schema.keys.find("preset");
    if (selects == schema.keys.end()) return {};
    const Written* written = written_in(table, "preset");
    const Value& name = written != nullptr ? written->value : selects->second.standard;
    const auto preset = name.is_set() ? schema.presets.find(name.as_text()) : schema.presets.end();
    return preset == schema.presets.end() ? std::map<std::string, Value>() : preset->second;
  }

  void rule(Manifest& manifest, const std::string& id, const MergedTable& table) {
    ParameterRule out;
    out.name = id.substr(kRule.size());
    out.layer = table.layer;
    out.origin = table.origin;
    for (const auto& [key, written] : table.keys)
      if (key != "where" && key != "enabled") out.values[key] = written.value;
    const Written* where = written_in(table, "where");
    if (where == nullptr)
      return report_.add(
          mistake("missing_key", "[" + id + "] has no `where`", table.origin, "where = \"role:norm\"   (which parameters: globs, role: tag: dim:)"));
    if (out.values.contains("lr") && out.values.contains("lr_scale"))
      return report_.add(mistake("two_rates", "[" + id + "] has both `lr` and `lr_scale`", out.values.at("lr_scale").origin, "leave one out"));
    out.where = where->value.as_selector();
    manifest.rules.push_back(std::move(out));
  }

  Value resolved(const Written& written) {
    Value value = written.value;
    const bool on_command_line = static_cast<size_t>(written.layer) >= layers_.size();
    if (is_path_type(written.schema->type))
      resolve_paths(value, on_command_line ? current_folder() : layers_[static_cast<size_t>(written.layer)].folder, report_);
    return value;
  }

  const Merger& merged_;
  const Vocabulary& words_;
  const std::vector<Layer>& layers_;
  Report& report_;
};

bool is_run_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         std::ranges::all_of(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'; });
}

// run.name, else the stem of the file with what no name may have replaced.
std::string name_of(Manifest& manifest, const std::string& file, Report& report) {
  Value& written = manifest.tables["run"]["name"];
  if (written.is_set()) {
    if (is_run_name(written.as_text())) return written.as_text();
    report.add(mistake("bad_name", "a run's name is letters, digits, `.`, `_` and `-`, this is `" + written.as_text() + "`", written.origin));
    return "run";
  }
  std::string name = std::filesystem::path(file).stem();
  for (char& c : name)
    if (!is_run_name(std::string_view(&c, 1)) && c != '.') c = '-';
  if (!is_run_name(name)) name = "run";
  written.data = name;
  written.origin = {"default of run.name", 0, 0, "run.name"};
  return name;
}

Manifest read(const ManifestRequest& request, LayerFiles& files, Report& report) {
  Manifest manifest;
  manifest.path = request.file;
  files = read_layers(request, report);
  const bool all_read = !report.has_errors();
  const int command_line = static_cast<int>(files.layers.size());
  for (const Layer& layer : files.layers) manifest.layers.push_back(layer.name);
  manifest.layers.push_back("command line");

  const Vocabulary words(request);
  Merger merged(words, report);
  for (int i = 0; i < command_line; ++i) merged.add_layer(files.layers[static_cast<size_t>(i)], i);
  for (const std::string& id : request.use) merged.use(id, command_line);
  for (const std::string& id : request.without) merged.without(id, command_line);
  const std::vector<Setting> settings = read_settings(request.set, report);
  warn_of_doubles(settings, report);
  // Without one of the files, nobody knows what is on.
  if (!all_read) return manifest;
  for (const Setting& setting : settings) merged.set(setting, command_line);

  Completion completion(merged, words, files.layers, report);
  completion.core_tables(manifest);
  completion.order(manifest);
  completion.plugins(manifest);
  completion.rules(manifest);
  manifest.name = name_of(manifest, request.file, report);
  return manifest;
}

}  // namespace

Manifest read_manifest(const ManifestRequest& request, Report& report) {
  Report own;
  LayerFiles files;
  Manifest manifest = read(request, files, own);
  std::vector<Diagnostic> all = own.all();
  show_lines(all, files.lines);
  sort_by_place(all, files.layers);
  for (Diagnostic& d : all) report.add(std::move(d));
  return manifest;
}

std::vector<std::string> plugin_paths_of(const ManifestRequest& request) {
  Report quiet;
  Value paths;
  const KeySchema& schema = core_schema().tables.at("plugins").keys.at("path");
  const auto take = [&](const TomlNode& node, const std::string& folder) {
    std::optional<Value> checked = check_value(schema, node, {"", "plugins.path"}, quiet);
    if (checked) paths = std::move(*checked), resolve_paths(paths, folder, quiet);
  };
  for (const Layer& layer : read_layers(request, quiet).layers)
    if (const TomlNode* node = layer.root.find("plugins", "path")) take(*node, layer.folder);
  for (const Setting& setting : read_settings(request.set, quiet)) {
    if (setting.path != std::vector<std::string>{"plugins", "path"}) continue;
    paths = {};
    if (!setting.to_default) take(setting.value, current_folder());
  }
  return paths.is_set() ? paths.as_texts() : std::vector<std::string>();
}

}  // namespace mortise
