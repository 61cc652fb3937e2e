#include "core/manifest/merge.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"

namespace mortise {
namespace {

constexpr std::string_view kRules = "parameters";

// Open: takes the places that nobody else claims.
bool is_open(const MergedTable& table) { return !table.keys.contains("where") && !table.keys.contains("modes"); }

}  // namespace

void Merger::add_layer(const Layer& layer, int number) {
  file_ = layer.name;
  layer_ = number;
  for (const TomlEntry& entry : layer.root.entries) root_entry(entry);
}

void Merger::root_entry(const TomlEntry& entry) {
  const std::string& name = entry.key;
  const bool family_name = words_.is_family(name), known = family_name || name == kRules || words_.is_core_table(name);
  if (name == "include") return;
  if (!entry.value.is_table()) {
    if (family_name) return report_.add(words_.value_for_table("", name, entry.value, at(entry)));
    if (!known) return report_.add(words_.unknown_key("", name, entry.value, at(entry)));
    return report_.add(mistake("wrong_type", name + " is a table, this is " + entry.value.kind(), at(entry), "[" + name + "]"));
  }
  if (family_name) return family(entry);
  if (!known) return unknown_table(entry);
  for (const TomlEntry& inner : entry.value.table()->entries) {
    if (name != kRules)
      write(name, inner.key, inner.value, at(inner));
    else if (is_name(inner.key))
      own_table("parameters." + inner.key, inner);
    else
      report_.add(mistake("bad_name", "a name is small letters, digits and _, this is `" + inner.key + "`", at(inner), "[parameters.no_decay]"));
  }
}

// Where a table inside it looks like a plugin's, that is what was meant, and what the message speaks of.
void Merger::unknown_table(const TomlEntry& entry) {
  bool named = false;
  for (const TomlEntry& inner : entry.value.table()->entries) {
    if (!inner.value.is_table()) continue;
    report_.add(words_.unknown_table(entry.key + "." + inner.key, at(inner.value)));
    named = true;
  }
  if (!named) report_.add(words_.unknown_table(entry.key, at(entry.value)));
}

void Merger::family(const TomlEntry& entry) {
  for (const TomlEntry& inner : entry.value.table()->entries) {
    const std::string id = entry.key + "." + inner.key;
    const bool key = words_.key(entry.key, inner.key) != nullptr, plugin = words_.plugin(id) != nullptr;
    if (!key && plugin && !inner.value.is_table() && inner.value.list() == nullptr)
      report_.add(words_.value_for_table(entry.key, inner.key, inner.value, at(inner)));
    else if (!key && plugin)
      own_table(id, inner);
    else if (!key && inner.value.is_table() && inner.key != "include")
      report_.add(words_.unknown_table(id, at(inner.value)));
    else
      write(entry.key, inner.key, inner.value, at(inner));
  }
}

void Merger::own_table(const std::string& name, const TomlEntry& entry) {
  if (!entry.value.is_table())
    return report_.add(mistake("wrong_type", name + " is a table, this is " + entry.value.kind(), at(entry.value), "[" + name + "]"));
  MergedTable& table = tables[name];
  table.layer = layer_;
  table.origin = at(entry.value);
  table.enabled = true;  // presence is choice; `enabled` of a lower layer is not inherited
  for (const TomlEntry& inner : entry.value.table()->entries) write(name, inner.key, inner.value, at(inner));
}

void Merger::write(const std::string& table, const std::string& key, const TomlNode& value, const Position& position) {
  const std::string whole = table + "." + key;
  const KeySchema* schema = words_.key(table, key);
  if (schema == nullptr && key == "include")
    return report_.add(mistake("include_placement", "`include` stands inside [" + table + "]", position,
                               "move it to the top of the file, before the first table (a key belongs to the table above it)"));
  if (schema == nullptr) return report_.add(words_.unknown_key(table, key, value, position));
  std::optional<Value> checked = check_value(*schema, value, {file_, whole}, report_);
  if (!checked) return;
  if (schema->deprecated) {
    const Deprecation& old = *schema->deprecated;
    Diagnostic d = mistake("deprecated_key", whole + " is deprecated since " + old.since, position, "use " + old.use);
    if (!old.remove.empty()) d.effect = "it will be gone in " + old.remove;
    d.level = Level::kWarning;
    report_.add(std::move(d));
  }
  if (words_.plugin(table) != nullptr) check_reserved(table, key, *checked);
  if (key == "enabled") tables[table].enabled = checked->as_bool();
  tables[table].keys[key] = {std::move(*checked), layer_, schema};
}

void Merger::check_reserved(const std::string& id, const std::string& key, const Value& value) {
  if (key != "fallback") return;
  if (words_.plugin(id)->provides.empty())
    report_.add(mistake("fallback_without_place", id + " provides nothing, so nobody can take its place", value.origin, "leave `fallback` out"));
  for (const Value& other : value.as_list())
    if (words_.plugin(other.as_text()) == nullptr) report_.add(words_.unknown_plugin(other.as_text(), "", other.origin));
}

void Merger::use(const std::string& id, int number) {
  const Position from{"command line: --use " + id, 0, 0, id};
  if (words_.plugin(id) == nullptr) return report_.add(words_.unknown_plugin(id, "--use ", from));
  MergedTable& table = tables[id];
  table.layer = number;
  table.origin = from;
  table.enabled = true;
}

void Merger::without(const std::string& id, int number) {
  const Position from{"command line: --without " + id, 0, 0, id};
  const auto found = tables.find(id);
  const bool rule = id.starts_with("parameters.") && found != tables.end();
  if (words_.plugin(id) == nullptr && !rule) return report_.add(words_.unknown_plugin(id, "--without ", from));
  if (found != tables.end() && found->second.enabled && found->second.layer == number)
    return report_.add(mistake("use_and_without", id + " is asked for and refused", from, "leave out --use " + id + " or --without " + id));
  if (found == tables.end() || !found->second.enabled) {
    Diagnostic d = mistake("not_on", id + " is not on", from, "leave out --without " + id);
    d.level = Level::kWarning;
    return report_.add(std::move(d));
  }
  found->second.layer = number;
  found->second.origin = from;
  found->second.enabled = false;
}

std::string Merger::replaced_by(const std::string& id) const {
  const PluginSchema& schema = *words_.plugin(id);
  const MergedTable& own = tables.at(id);
  const auto taker = [&](auto takes) -> std::string {
    for (const auto& [other, table] : tables) {
      const PluginSchema* plugin = words_.plugin(other);
      if (plugin != nullptr && table.enabled && table.layer > own.layer && is_open(table) && takes(*plugin)) return other;
    }
    return "";
  };
  for (const std::string& group : schema.exclusive)
    if (std::string by = taker([&](const PluginSchema& other) { return std::ranges::find(other.exclusive, group) != other.exclusive.end(); });
        !by.empty())
      return by;
  std::string by;
  for (const std::string& point : schema.provides) {
    by = taker([&](const PluginSchema& other) { return std::ranges::find(other.provides, point) != other.provides.end(); });
    if (by.empty()) return "";
  }
  return by;
}

// Whether a plugin's or rule's table is on, so that a key of it can be set; else says so.
bool Merger::is_on(const Setting& setting, const std::string& id) {
  const std::string whole = join(setting.path, ".");
  const Position from{setting.file, 0, 0, whole};
  const auto found = tables.find(id);
  const bool plugin = words_.plugin(id) != nullptr;
  const bool there = found != tables.end() && found->second.layer >= 0;
  if (there && found->second.enabled && plugin) {
    const std::string by = replaced_by(id);
    if (by.empty()) return true;
    Position of = tables.at(by).origin;
    of.column = 0;
    report_.add(mistake("set_not_on", id + " is not on: " + by + " (" + of.text() + ") replaced it", from, "--use " + id));
    return false;
  }
  if (there && found->second.enabled) return true;
  const std::string assigned = setting.file.substr(setting.file.find("--set"));
  const bool switches = setting.path.back() == "enabled";
  report_.add(mistake("set_not_on", id + " is not on, so `" + whole + "` sets nothing", from,
                      plugin ? "--use " + id + (switches ? "" : " " + assigned) : "[" + id + "] in a file"));
  return false;
}

void Merger::set(const Setting& setting, int number) {
  file_ = setting.file;
  layer_ = number;
  const std::vector<std::string>& path = setting.path;
  const std::string whole = join(path, ".");
  const Position from{setting.file, 0, 0, whole};
  const bool family = words_.is_family(path[0]), rule = path[0] == kRules;
  std::string table = path[0];
  if (path.size() == 1 && (family || rule || words_.is_core_table(table)))
    return report_.add(
        mistake("set_not_on", "`" + whole + "` is a table, and --set sets keys", from, "--use " + table + ".NAME, or --set " + table + ".KEY=VALUE"));
  if (path.size() == 1) return report_.add(words_.unknown_key("", whole, setting.value, from));
  if (path.size() == 2 && words_.plugin(whole) != nullptr && words_.key(table, path[1]) == nullptr)
    return report_.add(mistake("set_not_on", "`" + whole + "` is a plugin, and --set sets keys", from, "--use " + whole));
  if (!family && !rule && !words_.is_core_table(table))
    return report_.add(words_.unknown_table(path.size() > 2 ? path[0] + "." + path[1] : table, from));
  if (path.size() > 2) {
    table = path[0] + "." + path[1];
    if (!rule && words_.plugin(table) == nullptr) {
      if (words_.is_core_table(path[0])) return report_.add(words_.unknown_key(path[0], path[1], setting.value, from));
      return report_.add(words_.unknown_plugin(table, "--use ", from));
    }
  }
  const std::string key = join({path.begin() + (path.size() > 2 ? 2 : 1), path.end()}, ".");
  if (words_.key(table, key) == nullptr) return report_.add(words_.unknown_key(table, key, setting.value, from));
  if (table != path[0] && !is_on(setting, table)) return;
  if (!setting.to_default) return write(table, key, setting.value, from);
  tables[table].keys.erase(key);
  if (key == "enabled") tables[table].enabled = true;
}

}  // namespace mortise
