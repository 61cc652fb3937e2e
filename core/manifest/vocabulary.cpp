#include "core/manifest/vocabulary.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"

namespace mortise {
namespace {

const std::map<std::string, PluginSchema> kNoPlugins;
const TableSchema kNoTable;

std::string in_brackets(const std::string& name) { return "[" + name + "]"; }
const std::string kSwitchedOn = "a plugin is switched on by its table: ";

// "FAMILY.NAME.KEY" -> "FAMILY.NAME", "KEY".
std::pair<std::string, std::string> table_and_key(const std::string& whole) {
  const size_t dot = whole.rfind('.');
  return {whole.substr(0, dot), whole.substr(dot + 1)};
}

template <class Map>
std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// What was written in the place of each {…}, which holds an example.
std::string filled_in(std::string text, const TomlNode& value) {
  std::string written;
  if (value.text()) written = *value.text();
  else if (const auto v = value.at.file.empty() ? std::nullopt : plain_value(value, ""); v && v->is_set())
    written = v->text();
  for (size_t open = 0; (open = text.find('{', open)) != text.npos;) {
    const size_t close = text.find('}', open);
    if (close == text.npos) break;
    const std::string example = text.substr(open + 1, close - open - 1);
    text.replace(open, close - open + 1, written.empty() ? example : written);
  }
  return text;
}

bool not_yet(const std::string& whole) { return std::ranges::count(core_schema().later, whole) > 0; }

}  // namespace

Vocabulary::Vocabulary(const ManifestRequest& request)
    : request_(request), catalogue_(request.catalogue != nullptr ? *request.catalogue : kNoPlugins) {
  Report quiet;  // only hints are lost without it
  foreign_ = read_toml(request.shipped_dir + "/foreign_names.toml", "", quiet).value_or(TomlTable());
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

const KeySchema* Vocabulary::key(const std::string& table, const std::string& name) const {
  const std::string key = table == "order" ? "any_point" : name;  // its keys are points, which only the plan knows
  const bool rule = table.starts_with("parameters.") && (key == "enabled" || key == "layer");
  const bool reserved = rule || plugin(table) != nullptr;
  for (const TableSchema* schema : {reserved ? &core_schema().reserved : nullptr, schema_of(table)})
    if (schema != nullptr && schema->keys.contains(key)) return &schema->keys.at(key);
  return nullptr;
}

const KeySchema* Vocabulary::family_key(const std::string& id, const std::string& name) const {
  const PluginSchema* provider = plugin(id);
  const KeySchema* found = provider != nullptr && !provider->provides.empty() ? key(provider->family, name) : nullptr;
  return found != nullptr && found->per_provider ? found : nullptr;
}

std::vector<std::string> Vocabulary::ids_of(const std::string& family) const {
  std::vector<std::string> ids;
  for (const auto& [id, plugin] : catalogue_)
    if (plugin.family == family) ids.push_back(id);
  return ids;
}

// Plugins of any family whose own name this is.
std::vector<std::string> Vocabulary::ids_called(const std::string& name) const {
  std::vector<std::string> ids;
  for (const auto& [id, plugin] : catalogue_)
    if (plugin.name == name) ids.push_back(id);
  return ids;
}

// What foreign_names.toml says of a name: TABLE.KEY, or in a list what to say, or nothing.
Vocabulary::Foreign Vocabulary::foreign_names(std::string_view table, std::string_view name) const {
  const TomlNode* node = foreign_.find(table, name);
  if (const size_t end = name.find('_'); node == nullptr && end != std::string_view::npos)
    node = foreign_.find(table, std::string(name.substr(0, end)) + "_*");
  if (node == nullptr) return {};
  if (node->text() != nullptr) return {{*node->text()}, true};
  Foreign found;
  for (const TomlNode& each : node->list() != nullptr ? *node->list() : TomlList())
    if (each.text() != nullptr) found.texts.push_back(*each.text());
  return found;
}

// Of a key that means something else in this table than elsewhere, that.
Vocabulary::Foreign Vocabulary::foreign_key(const std::string& table, const std::string& key) const {
  Foreign here = foreign_names("keys", table + "." + key);
  return here.texts.empty() ? foreign_names("keys", key) : here;
}

std::vector<std::string> Vocabulary::keys_called(const std::string& name) const {
  std::vector<std::string> keys;
  for (const auto& [table, schema] : core_schema().tables)
    if (schema.keys.contains(name)) keys.push_back(table + "." + name);
  if (const Foreign foreign = foreign_key("", name); foreign.is_name) {
    const auto [table, key] = table_and_key(foreign.texts[0]);
    if (this->key(table, key) != nullptr) keys.push_back(foreign.texts[0]);
  }
  if (!keys.empty()) return keys;
  for (const auto& [id, plugin] : catalogue_)
    for (const auto& [key, schema] : plugin.config.keys)
      if (key == name || std::ranges::count(schema.aka, name) > 0) keys.push_back(id + "." + key);
  return keys;
}

std::vector<std::string> Vocabulary::said_of(const std::string& name) const {
  if (foreign_key("", name).is_name) return {};
  std::vector<std::string> texts = foreign("", name, {}), called;
  if (texts.empty() && !ids_of(name).empty()) texts = {kSwitchedOn + table_for(name, {})};
  for (const std::string& id : ids_called(name)) called.push_back(in_brackets(id));
  if (texts.empty() && !called.empty()) texts = {kSwitchedOn + either(called)};
  return texts;
}

// The table that `family = value` means; several, in one text, if the value does not say which.
std::string Vocabulary::table_for(const std::string& family, const TomlNode& value) const {
  const std::vector<std::string> ids = ids_of(family);
  if (const std::string* text = value.text()) {
    const std::vector<std::string> switches =
        foreign_names("tables", *text).texts;  // a technique whose name we know, here or not
    std::string name = switches.empty() ? family + "." + *text : switches[0];
    std::ranges::replace(name, '-', '_');
    if (plugin(name) != nullptr) return in_brackets(name);
    if (!switches.empty()) return in_brackets(name) + ", which is not installed";
    for (const std::string& id : ids)
      if (name.starts_with(id + "_")) return in_brackets(id);
    if (const std::string near = nearest(name, ids); !near.empty()) return in_brackets(near);
    if (ids.empty() && is_name(*text)) return in_brackets(name) + ", which is not installed";
  }
  std::vector<std::string> tables;
  for (const std::string& id : ids) tables.push_back(in_brackets(id));
  return tables.empty()       ? in_brackets(family + ".NAME")
         : tables.size() <= 4 ? either(tables)
                              : "mortise plugin list " + family;
}

// The plugin of a family that is called so here or elsewhere; "".
std::string Vocabulary::family_member(const std::string& family, const std::string& name) const {
  if (plugin(family + "." + name) != nullptr) return family + "." + name;
  const Foreign foreign = foreign_names("tables", name);
  const bool is_here = foreign.is_name && foreign.texts[0].starts_with(family + ".") && plugin(foreign.texts[0]);
  return is_here ? foreign.texts[0] : "";
}

// What to do instead of a name from elsewhere; nothing if we do not know it.
std::vector<std::string> Vocabulary::foreign(const std::string& table, const std::string& key,
                                             const TomlNode& value) const {
  const auto [targets, is_name] = foreign_key(table, key);
  const std::vector<std::string> switches = foreign_names("tables", key).texts;
  if (!is_name && !targets.empty()) {
    std::vector<std::string> texts;
    for (const std::string& text : targets) texts.push_back(filled_in(text, value));
    return texts;
  }
  if (is_name) {
    const auto [where, name] = table_and_key(targets[0]);
    const std::string missing =
        not_yet(targets[0]) || this->key(where, name) == nullptr ? ", and not available in this version" : "";
    return {"it is called `" + name + "`" + (where == table ? " here" : ", in [" + where + "]") + missing};
  }
  if (switches.empty()) return {};
  const auto [family, name] = table_and_key(switches[0]);
  TomlNode named = value;
  if (name != "*") named.data = name;
  return {kSwitchedOn + table_for(family, named)};
}

std::vector<std::string> Vocabulary::typed_for(const std::string& name, const std::string& value) const {
  if (const std::vector<std::string> keys = keys_called(name); keys.size() == 1) {
    const std::string table = table_and_key(keys[0]).first;
    const std::string use = plugin(table) != nullptr ? "--use " + table + " " : "";  // it may be off
    return {use + "--set " + keys[0] + "=" + (value.empty() ? "VALUE" : shell_word(value))};
  }
  TomlNode node;
  if (!value.empty()) node.data = value;
  std::vector<std::string> texts = foreign("", name, node);
  if (texts.empty() && is_family(name)) texts = {kSwitchedOn + table_for(name, node)};
  for (const auto& [id, plugin] : catalogue_)
    if (!texts.empty() && texts[0] == kSwitchedOn + in_brackets(id)) return {"--use " + id};
  return texts;
}

// Other tables that have this key, if they are few enough to be what was meant; else "".
std::string Vocabulary::elsewhere(const std::string& table, const std::string& name) const {
  const std::string family = table.substr(0, table.find('.'));
  if (table != family && key(family, name) != nullptr) return "`" + name + "` belongs in [" + family + "]";
  std::vector<std::string> tables;
  for (const std::string& id : ids_of(table))
    if (plugin(id)->config.keys.contains(name)) tables.push_back(in_brackets(id));
  if (tables.empty())
    for (const auto& [other, schema] : core_schema().tables)
      if (schema.keys.contains(name)) tables.push_back(in_brackets(other));
  return tables.empty() || tables.size() > 2 ? "" : "`" + name + "` belongs in " + either(tables);
}

Diagnostic Vocabulary::unknown_key(const std::string& table, const std::string& name, const TomlNode& value,
                                   const Position& at) const {
  const std::string whole = table.empty() ? name : table + "." + name;
  Diagnostic d = mistake(
      "unknown_key",
      table.empty() ? "there is no key `" + name + "` outside the tables" : "[" + table + "] has no key `" + name + "`",
      keyed(at, whole));
  const auto fixed = [&](const std::string& fix, const std::string& with = "") {
    d.fixes = {fix};
    if (!with.empty()) d.replace = name, d.with = with;
    return d;
  };
  const TableSchema* schema = schema_of(table);
  const std::map<std::string, KeySchema>& keys = (schema != nullptr ? *schema : kNoTable).keys;
  std::map<std::string, std::string> known;  // every spelling in this table -> the key
  for (const auto& [own, key_schema] : keys) {
    known[own] = own;
    for (const std::string& alias : key_schema.aka) known[alias] = own;
  }
  if (known.contains(name)) return fixed("it is called `" + known[name] + "` here", known[name]);
  const PluginSchema* owner = plugin(table);
  if (owner && keys.empty() && key(owner->family, name) == nullptr)
    return fixed(table + " has no keys of its own, only " + join(names_of(core_schema().reserved.keys), ", "));
  if (not_yet(whole)) return fixed("`" + whole + "` is not available in this version");
  if (table.empty() && at.line == 0) {  // --set NAME=VALUE
    d.fixes = typed_for(name, at.file.substr(std::min(at.file.find('='), at.file.size() - 1) + 1));
    if (!d.fixes.empty()) return d;
  }
  if (d.fixes = foreign(table, name, value); !d.fixes.empty()) {
    const auto [targets, is_name] = foreign_key(table, name);
    return is_name && table_and_key(targets[0]).first == table ? fixed(d.fixes[0], table_and_key(targets[0]).second)
                                                               : d;
  }
  // [FAMILY] name = "NAME", or any other key with the name of a plugin of it.
  if (is_family(table) && name != "name" && value.text() != nullptr)
    if (const std::string id = family_member(table, *value.text()); !id.empty())
      return fixed(kSwitchedOn + in_brackets(id));
  const std::string near = nearest(name, names_of(known));  // a typo of a key of a plugin, rather than a family
  const bool means_family = is_family(name) && (near.empty() || plugin(table) == nullptr);
  if (!value.is_table() && (means_family || (is_family(table) && name == "name")))
    return fixed(kSwitchedOn + table_for(name == "name" ? table : name, value));
  if (const std::string belongs = elsewhere(table, name); !belongs.empty()) return fixed(belongs);

  if (plugin(table) != nullptr) d.see = "mortise plugin info " + table;
  if (!near.empty()) {
    const KeySchema& meant = keys.at(known[near]);
    Report quiet;
    const std::string meant_whole = table + "." + meant.name;
    const Value written = check_value(meant, value, meant_whole, quiet).value_or(meant.default_value);
    return fixed(written.is_set() ? assignment(keyed(at, meant_whole), written.text())
                                  : "it is called `" + meant.name + "` here",
                 meant.name);
  }
  std::vector<std::string> foreign_spellings;
  if (const TomlNode* all = foreign_.find("keys"); all != nullptr && all->is_table())
    for (const TomlEntry& entry : all->table()->entries) foreign_spellings.push_back(entry.key);
  std::ranges::sort(foreign_spellings);
  // A typo of one, not a longer name that one is a part of.
  if (const std::string far = nearest(name, foreign_spellings);
      !far.empty() && edit_distance(name, far) <= (name.size() > 4 ? 2 : 1))
    d.fixes = foreign(table, far, value);
  else if (!known.empty() && plugin(table) == nullptr) d.fixes = {"[" + table + "] has " + join(names_of(keys), ", ")};
  return d;
}

Diagnostic Vocabulary::unknown_table(const std::string& name, const Position& at) const {
  if (name.find('.') != std::string::npos) return unknown_plugin(name, "", at);
  std::vector<std::string> called;
  for (const std::string& id : ids_called(name)) called.push_back(in_brackets(id));
  std::vector<std::string> tables = names_of(core_schema().tables);
  for (const auto& [id, plugin] : catalogue_) tables.push_back(plugin.family);
  std::ranges::sort(tables);
  const std::string near = nearest(name, tables, name.size() > 4 ? 2 : 1);
  Diagnostic d = mistake("unknown_table", "no table is called `" + name + "`", at,
                         "a table is [run], [eval], [plugins], [parameters.NAME], a family or a plugin: mortise plugin "
                         "list");
  d.about = name;
  d.meant = called.size() == 1 ? ids_called(name)[0] : near;
  if (!called.empty()) d.fixes = {either(called)};
  else if (!near.empty()) d.fixes = {in_brackets(near)};
  else if (const std::vector<std::string> said = said_of(name); !said.empty()) d.fixes = said;
  return d;
}

Diagnostic Vocabulary::unknown_plugin(const std::string& id, const std::string& flag, const Position& at) const {
  const size_t dot = id.find('.');
  const std::string family = id.substr(0, dot),
                    list = "mortise plugin list" + (ids_of(family).empty() ? "" : " " + family);
  const auto written = [&](const std::string& other) { return flag.empty() ? in_brackets(other) : flag + other; };
  // The own name by itself, or behind another family.
  const std::string own = dot == std::string::npos ? id : id.substr(dot + 1);
  std::vector<std::string> likely = ids_called(own);
  if (ids_of(family).size() > 0) likely.clear();
  if (likely.empty())
    if (const Foreign known = foreign_key("", own); known.is_name)
      if (const std::string table = table_and_key(known.texts[0]).first; catalogue_.contains(table)) likely = {table};
  if (likely.empty())
    if (const std::string near = nearest(id, ids_of(family)); !near.empty()) likely = {near};
  if (likely.empty())
    if (const std::string near = nearest(id, names_of(catalogue_)); !near.empty()) likely = {near};
  Diagnostic d = mistake(flag.empty() ? "unknown_table" : "unknown_plugin", "no plugin is called `" + id + "`", at);
  d.about = d.plugin = id;
  if (!likely.empty()) d.meant = likely[0];
  for (std::string& other : likely) other = written(other);
  d.fixes = {likely.empty() ? list : either(likely) + "    others: " + list};
  if (!request_.searched.empty()) d.beside = "looked in " + join(request_.searched, ", ");
  return d;
}

Diagnostic Vocabulary::value_for_table(const std::string& table, const std::string& key, const TomlNode& value,
                                       const Position& at) const {
  const std::string whole = table.empty() ? key : table + "." + key;
  return mistake("value_for_table",
                 "`" + key + "` is " + (table.empty() ? "a family" : "a plugin of [" + table + "]") + ", not a key",
                 keyed(at, whole), table.empty() ? table_for(key, value) : in_brackets(whole));
}

Value family_default(const Manifest& m, const std::string& family, const std::string& key) {
  Value found;
  int providers = 0;
  for (const PluginTable& p : m.plugins) {
    if (!p.enabled || p.schema->family != family || p.schema->provides.empty()) continue;
    ++providers;
    if (const auto own = p.schema->family_defaults.find(key); own != p.schema->family_defaults.end())
      found = own->second;
  }
  return providers == 1 ? found : Value();
}

}  // namespace mortise
