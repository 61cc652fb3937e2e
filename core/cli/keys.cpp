// mortise keys: what may stand in a manifest, as the schemas of the core and of every plugin say it.
#include <spdlog/fmt/fmt.h>

#include <iostream>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/cli/print.hpp"

namespace mortise::cli {
namespace {

struct Table {
  std::string name;
  const TableSchema* schema = nullptr;
  const PluginSchema* plugin = nullptr;  // NULL: the core's
};

std::vector<Table> all_tables(const std::map<std::string, PluginInfo>& known) {
  const CoreSchema& core = core_schema();
  std::vector<Table> all;
  for (const auto& [name, schema] : core.tables) all.push_back({name, &schema});
  all.push_back({"parameters.NAME", &core.rule});
  all.push_back({"FAMILY.NAME", &core.reserved});
  for (const auto& [id, info] : known) all.push_back({id, &info.schema.config, &info.schema});
  return all;
}

// In [order], a key is called as a point is.
std::string name_of(const KeySchema& key) { return key.name == "any_point" ? "POINT" : key.name; }

std::string default_of(const KeySchema& key) {
  if (key.default_value.is_set()) return key.default_value.text();
  return key.same_as.empty() ? "" : "that of " + key.same_as;
}

Json json_of(const Table& table, const KeySchema& key) {
  return {{"table", table.name},    {"key", name_of(key)},  {"type", key.type}, {"default", default_of(key)},
          {"takes", taken_by(key)}, {"change", key.change}, {"doc", key.doc}};
}

// A value of a preset or of a family's defaults: `lr` = 1e-3.
std::string assignments(const std::map<std::string, Value>& values) {
  std::vector<std::string> all;
  for (const auto& [key, value] : values) all.push_back(fmt::format("`{} = {}`", key, value.text()));
  return join(all, ", ");
}

std::string section(const Table& table) {
  std::string text = fmt::format("\n### `[{}]`\n\n", table.name);
  if (table.plugin != nullptr) text += table.plugin->summary + ".\n\n";
  if (table.schema->keys.empty()) return text + "No keys of its own.\n";
  text += "| key | type | default | takes | change | what it is |\n|---|---|---|---|---|---|\n";
  const auto code = [](const std::string& word) { return word.empty() ? "" : "`" + markdown_cell(word) + "`"; };
  for (const auto& [name, key] : table.schema->keys)
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", name_of(key), code(key.type), code(default_of(key)),
                        markdown_cell(taken_by(key)), key.change, markdown_cell(key.doc));
  for (const auto& [name, values] : table.schema->presets)
    text += fmt::format("\n`preset = \"{}\"` means {}.\n", name, assignments(values));
  if (table.plugin != nullptr && !table.plugin->family_defaults.empty())
    text += fmt::format("\nWhere no manifest says, in `[{}]`: {}.\n", table.plugin->family,
                        assignments(table.plugin->family_defaults));
  return text;
}

constexpr const char* kIntroduction =
    "<!-- made of the schemas of the core and of the plugins by: mortise keys --markdown > docs/manifest.md -->\n"
    "# Every table and key of a manifest\n\n"
    "[The manifest](guide/manifest.md) says what the types are, how layers go on top of one another, and what a run "
    "that is resumed may change.\n`mortise plan RUN --keys` prints the keys of one run, each with its value and where "
    "that is from.\n\n## Tables of the core and of families\n\n"
    "`[parameters.NAME]` is a rule for some parameters, under a name of your choice. The keys of `[FAMILY.NAME]` may "
    "stand in the table of every plugin.\n";

std::string page(const std::vector<Table>& tables) {
  std::string text = kIntroduction;
  bool of_plugins = false;
  for (const Table& table : tables) {
    if (table.plugin != nullptr && !of_plugins) text += "\n## Tables of plugins\n";
    of_plugins = table.plugin != nullptr;
    text += section(table);
  }
  return text;
}

}  // namespace

std::string taken_by(const KeySchema& key) {
  std::vector<std::string> bounds;
  if (key.exclusive_min) bounds.push_back("above " + whole_text(*key.exclusive_min));
  if (key.min) bounds.push_back("from " + whole_text(*key.min));
  if (key.max) bounds.push_back((key.min ? "to " : "at most ") + whole_text(*key.max));
  const std::string range = join(bounds, key.min ? " " : ", ");
  return join(key.choices, ", ") + (key.choices.empty() || range.empty() ? "" : "; ") + range;
}

int keys(const Arguments& args) {
  Report report;
  std::vector<std::string> searched;
  const std::map<std::string, PluginInfo> known = catalogue(args, nullptr, searched, report);
  if (report.has_errors()) say(report, "");
  const std::vector<Table> tables = all_tables(known);
  if (args.has("--markdown")) {
    std::cout << page(tables);
    return kExitOk;
  }
  std::vector<Json> objects;
  Rows rows = {{"key", "type", "default", "takes", "change", "what it is"}};
  for (const Table& table : tables)
    for (const auto& [name, key] : table.schema->keys) {
      objects.push_back(json_of(table, key));
      rows.push_back({table.name + "." + name_of(key), key.type, default_of(key), taken_by(key), key.change,
                      escape_control(key.doc)});
    }
  if (globals().json) std::cout << list_text("keys", objects);
  else print_columns(std::cout, rows);
  return kExitOk;
}

}  // namespace mortise::cli
