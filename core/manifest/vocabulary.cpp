#include "core/manifest/vocabulary.hpp"

#include <algorithm>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"

namespace mortise {
namespace {

const std::map<std::string, PluginSchema> kNoPlugins;

std::string in_brackets(const std::string& name) { return "[" + name + "]"; }

// "FAMILY.NAME.KEY" -> "FAMILY.NAME", "KEY".
std::pair<std::string, std::string> table_and_key(const std::string& whole) {
  const size_t dot = whole.rfind('.');
  return {whole.substr(0, dot), whole.substr(dot + 1)};
}

// A table of texts, or of lists of texts.
std::map<std::string, std::vector<std::string>> texts_in(const TomlTable& root, std::string_view table) {
  std::map<std::string, std::vector<std::string>> all;
  const TomlNode* node = root.find(table);
  if (node == nullptr || !node->is_table()) return all;
  for (const TomlEntry& entry : node->table()->entries) {
    for (const TomlNode& element : entry.value.list() != nullptr ? *entry.value.list() : TomlList{entry.value})
      if (element.text() != nullptr) all[entry.key].push_back(*element.text());
  }
  return all;
}

}  // namespace

Vocabulary::Vocabulary(const ManifestRequest& request)
    : catalogue_(request.catalogue != nullptr ? *request.catalogue : kNoPlugins), searched_(request.searched) {
  for (const auto& [name, table] : core_schema().tables)
    if (core_schema().is_family(name)) families_.insert(name);
  for (const auto& [id, plugin] : catalogue_) families_.insert(plugin.family);

  // Only hints are lost without it.
  Report quiet;
  const std::optional<TomlTable> names = read_toml(request.shipped_dir + "/foreign_names.toml", "", quiet);
  if (!names) return;
  foreign_keys_ = texts_in(*names, "keys");
  for (const auto& [name, targets] : texts_in(*names, "tables")) foreign_tables_[name] = targets.front();
  for (const auto& [name, says] : texts_in(*names, "says")) says_[name] = says.front();
}

const PluginSchema* Vocabulary::plugin(const std::string& id) const {
  const auto found = catalogue_.find(id);
  return found == catalogue_.end() ? nullptr : &found->second;
}

const TableSchema* Vocabulary::schema_of(const std::string& table) const {
  if (table.starts_with("parameters.")) return &core_schema().rule;
  if (const PluginSchema* found = plugin(table)) return &found->config;
  const auto found = core_schema().tables.find(table);
  return found == core_schema().tables.end() ? nullptr : &found->second;
}

const KeySchema* Vocabulary::key(const std::string& table, const std::string& key) const {
  const TableSchema* schema = schema_of(table);
  if (schema == nullptr) return nullptr;
  const bool rule = table.starts_with("parameters.");
  if (plugin(table) != nullptr || (rule && key == "enabled"))
    if (const auto reserved = core_schema().reserved.keys.find(key); reserved != core_schema().reserved.keys.end()) return &reserved->second;
  const auto found = schema->keys.find(table == "order" ? "any_point" : key);
  return found == schema->keys.end() ? nullptr : &found->second;
}

std::vector<std::string> Vocabulary::ids_of(const std::string& family) const {
  std::vector<std::string> ids;
  for (const auto& [id, plugin] : catalogue_)
    if (plugin.family == family) ids.push_back(id);
  return ids;
}

bool Vocabulary::not_yet(const std::string& whole) const { return std::ranges::find(core_schema().later, whole) != core_schema().later.end(); }

// The table that `family = value` means; several, in one text, if the value does not say which.
std::string Vocabulary::table_for(const std::string& family, const TomlNode& value) const {
  const std::vector<std::string> ids = ids_of(family);
  if (const std::string* text = value.text()) {
    const auto switches = foreign_tables_.find(*text);  // a technique whose name we know, here or not
    std::string name = switches != foreign_tables_.end() ? switches->second : family + "." + *text;
    std::ranges::replace(name, '-', '_');
    if (plugin(name) != nullptr) return in_brackets(name);
    if (switches != foreign_tables_.end()) return in_brackets(name) + ", which is not installed";
    for (const std::string& id : ids)
      if (name.starts_with(id + "_")) return in_brackets(id);
    if (const std::string near = nearest(name, ids); !near.empty()) return in_brackets(near);
    if (ids.empty() && is_name(*text)) return in_brackets(name) + ", which is not installed";
  }
  std::vector<std::string> tables;
  for (const std::string& id : ids) tables.push_back(in_brackets(id));
  return tables.empty() ? in_brackets(family + ".NAME") : tables.size() <= 4 ? either(tables) : "mortise plugin list " + family;
}

std::string Vocabulary::foreign_key(const std::string& table, const std::string& target, bool several) const {
  const auto [where, name] = table_and_key(target);
  const auto says = says_.find(target);
  std::string text = several && says != says_.end() ? says->second + " are `" + name + "` in [" + where + "]"
                     : where == table               ? "it is called `" + name + "` here"
                                                    : "it is called `" + name + "`, in [" + where + "]";
  return not_yet(target) || (key(where, name) == nullptr && !several) ? text + ", and not available in this version" : text;
}

std::vector<std::string> Vocabulary::foreign(const std::string& table, const std::string& key, const TomlNode& value) const {
  std::vector<std::string> fixes;
  if (const auto found = foreign_keys_.find(key); found != foreign_keys_.end()) {
    for (const std::string& target : found->second) fixes.push_back(foreign_key(table, target, found->second.size() > 1));
  } else if (const auto switches = foreign_tables_.find(key); switches != foreign_tables_.end()) {
    const auto [family, name] = table_and_key(switches->second);
    TomlNode named = value;
    if (name != "*") named.data = name;
    fixes = {"a plugin is switched on by its table: " + table_for(family, named)};
  }
  return fixes;
}

// Other tables that have this key, if they are few enough to be what was meant.
std::vector<std::string> Vocabulary::elsewhere(const std::string& table, const std::string& name) const {
  const std::string family = table.substr(0, table.find('.'));
  if (table != family && key(family, name) != nullptr) return {"`" + name + "` belongs in [" + family + "]"};
  std::vector<std::string> tables;
  for (const std::string& id : ids_of(table))
    if (key(id, name) != nullptr && core_schema().reserved.keys.count(name) == 0) tables.push_back(in_brackets(id));
  if (tables.empty())
    for (const auto& [other, schema] : core_schema().tables)
      if (schema.keys.contains(name)) tables.push_back(in_brackets(other));
  if (tables.empty() || tables.size() > 2) return {};
  return {"`" + name + "` belongs in " + either(tables)};
}

Diagnostic Vocabulary::unknown_key(const std::string& table, const std::string& name, const TomlNode& value, const Position& at) const {
  const std::string whole = table.empty() ? name : table + "." + name;
  Diagnostic d =
      mistake("unknown_key", table.empty() ? "there is no key `" + name + "` outside the tables" : "[" + table + "] has no key `" + name + "`", at);
  d.positions[0].key = whole;
  const TableSchema* schema = schema_of(table);

  std::map<std::string, std::string> known;  // every spelling in this table -> the key
  for (const auto& [own, key_schema] : schema != nullptr ? schema->keys : std::map<std::string, KeySchema>()) {
    known[own] = own;
    for (const std::string& alias : key_schema.aka) known[alias] = own;
  }
  if (known.contains(name)) {
    d.fixes = {"it is called `" + known[name] + "` here"};
    d.replace = name, d.with = known[name];
    return d;
  }
  if (not_yet(whole)) {
    d.fixes = {"`" + whole + "` is not available in this version"};
    return d;
  }
  if (d.fixes = foreign(table, name, value); !d.fixes.empty()) {
    const auto keys = foreign_keys_.find(name);
    if (keys != foreign_keys_.end() && keys->second.size() == 1 && table_and_key(keys->second[0]).first == table)
      d.replace = name, d.with = table_and_key(keys->second[0]).second;
    return d;
  }
  if (!value.is_table() && (is_family(name) || (is_family(table) && name == "name"))) {
    d.fixes = {"a plugin is switched on by its table: " + table_for(name == "name" ? table : name, value)};
    return d;
  }
  if (d.fixes = elsewhere(table, name); !d.fixes.empty()) return d;

  std::vector<std::string> spellings, foreign_spellings;
  for (const auto& [spelling, own] : known) spellings.push_back(spelling);
  for (const auto& [spelling, targets] : foreign_keys_) foreign_spellings.push_back(spelling);
  if (const std::string near = nearest(name, spellings); !near.empty()) {
    const KeySchema& meant = schema->keys.at(known[near]);
    Report quiet;
    const Place place{at.file, table + "." + meant.name};
    const std::optional<Value> written = check_value(meant, value, place, quiet);
    d.fixes = {written || meant.standard.is_set() ? place.written((written ? *written : meant.standard).text())
                                                  : "it is called `" + meant.name + "` here"};
    d.replace = name, d.with = meant.name;
  } else if (const std::string far = nearest(name, foreign_spellings); !far.empty()) {
    d.fixes = foreign(table, far, value);
  } else if (!known.empty() && plugin(table) == nullptr) {
    std::vector<std::string> names;
    for (const auto& [own, key_schema] : schema->keys) names.push_back(own);
    d.fixes = {"[" + table + "] has " + join(names, ", ")};
  }
  if (plugin(table) != nullptr) d.see = "mortise plugin info " + table;
  return d;
}

Diagnostic Vocabulary::unknown_table(const std::string& name, const Position& at) const {
  if (name.find('.') != std::string::npos) return unknown_plugin(name, "", at);
  Diagnostic d = mistake("unknown_table", "no table is called `" + name + "`", at);
  std::vector<std::string> tables(families_.begin(), families_.end());
  for (const auto& [table, schema] : core_schema().tables) tables.push_back(table);
  const std::string near = nearest(name, tables);
  d.fixes = {near.empty() ? "a table is [run], [eval], [plugins], [parameters.NAME], a family or a plugin: mortise plugin list" : in_brackets(near)};
  return d;
}

Diagnostic Vocabulary::unknown_plugin(const std::string& id, const std::string& flag, const Position& at) const {
  Diagnostic d = mistake(flag.empty() ? "unknown_table" : "unknown_plugin", "no plugin is called `" + id + "`", at);
  if (!searched_.empty()) d.beside = "looked in " + join(searched_, ", ");
  const std::string family = id.substr(0, id.find('.'));
  std::string near = nearest(id, ids_of(family));
  std::vector<std::string> all;
  for (const auto& [other, schema] : catalogue_) all.push_back(other);
  if (near.empty()) near = nearest(id, all);
  const std::string list = "mortise plugin list" + (is_family(family) && !ids_of(family).empty() ? " " + family : "");
  if (near.empty())
    d.fixes = {list};
  else
    d.fixes = {(flag.empty() ? in_brackets(near) : flag + near) + "    others: " + list};
  return d;
}

Diagnostic Vocabulary::value_for_table(const std::string& table, const std::string& key, const TomlNode& value, const Position& at) const {
  Diagnostic d = mistake("value_for_table", "`" + key + "` is " + (table.empty() ? "a family" : "a plugin of [" + table + "]") + ", not a key", at);
  d.positions[0].key = table.empty() ? key : table + "." + key;
  d.fixes = {table.empty() ? table_for(key, value) : in_brackets(table + "." + key)};
  return d;
}

}  // namespace mortise
