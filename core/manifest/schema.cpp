#include "core/manifest/schema.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"

namespace mortise {
namespace {

constexpr std::string_view kCoreSchema =
#include "core_schema.inc"
    ;

constexpr std::string_view kNoFamilies[] = {"run", "eval", "plugins", "parameters", "order"};

// Mistakes of a plugin.toml are its author's, not the user's: one code, one exit.
class SchemaReader {
 public:
  // `owner` stands before every key in messages ("FAMILY.NAME").
  SchemaReader(const std::string& owner, Report& report) : owner_(owner), report_(report) {}

  // The tables below [config], or below a table of core_schema.toml.
  std::map<std::string, KeySchema> keys(const TomlTable& config, const std::vector<std::string>& presets) {
    std::map<std::string, KeySchema> keys;
    for (const TomlEntry& entry : config.entries) {
      if (!is_name(entry.key)) broken(entry, "a key is [a-z][a-z0-9_]*, this is `" + entry.key + "`");
      else if (std::optional<KeySchema> read = key(entry, presets)) keys[entry.key] = std::move(*read);
    }
    return keys;
  }

  // Values of a preset or of [family_defaults], `what`: each a key of [table].
  std::map<std::string, Value> values(const TomlTable& from, const std::map<std::string, KeySchema>& keys,
                                      const std::string& table, const std::string& what, const std::string& origin) {
    std::map<std::string, Value> values;
    for (const TomlEntry& entry : from.entries) {
      const auto key = keys.find(entry.key);
      const std::string whole = table + "." + entry.key;
      if (key == keys.end())
        broken(entry, what + " names `" + entry.key + "`, which is no key of " +
                          (table == owner_ ? table : "[" + table + "]"));
      else if (std::optional<Value> read = value(key->second, entry.value, whole))
        values[entry.key] = {std::move(read->data), {origin, 0, 0, whole}};
    }
    return values;
  }

  std::nullopt_t broken(const TomlEntry& at, const std::string& message) {
    add(mistake("schema_broken", message, position(at.at)));
    return std::nullopt;
  }

 private:
  std::optional<KeySchema> key(const TomlEntry& entry, const std::vector<std::string>& presets) {
    const std::string whole = owner_ + "." + entry.key;
    const TomlTable* table = entry.value.table();
    if (table == nullptr) return broken(entry, "`" + whole + "` is described by a table: type, default, doc");
    KeySchema key;
    key.name = entry.key;
    fill(*table, whole,
         {{"type", &key.type},
          {"doc", &key.doc},
          {"change", &key.change},
          {"same_as", &key.same_as},
          {"choices", &key.choices},
          {"aka", &key.aka},
          {"min", &key.min},
          {"max", &key.max},
          {"exclusive_min", &key.exclusive_min},
          {"per_provider", &key.per_provider},
          {"default", Field()},
          {"deprecated", Field()}});
    if (const TomlNode* old = table->find("deprecated"); old != nullptr && old->is_table()) {
      Deprecation& d = key.deprecated.emplace();
      fill(*old->table(), whole + ".deprecated", {{"since", &d.since}, {"use", &d.use}, {"remove", &d.remove}});
    } else if (old != nullptr) {
      broken(entry, whole + ".deprecated is { since = …, use = …, remove = … }");
    }
    // The names of the presets are choices of the key that selects one.
    if (key.name == "preset") key.choices.insert(key.choices.end(), presets.begin(), presets.end());
    if (!is_known_type(key.type)) return broken(entry, whole + " has no type `" + key.type + "`");
    if (key.type.find("choice") != std::string::npos && key.choices.empty())
      return broken(entry, whole + ": a choice needs `choices`");
    if (key.change != "free" && key.change != "numeric" && key.change != "fixed")
      return broken(entry, whole + ": change is free, numeric or fixed");
    const bool is_of_plugin = owner_.find('.') != std::string::npos;
    if (is_of_plugin && (key.per_provider || !key.same_as.empty()))
      return broken(entry, whole + ": same_as and per_provider are for tables of the core, here nobody reads them");
    if (key.min && key.max && *key.min > *key.max) return broken(entry, whole + ": min is more than max");
    if (const TomlNode* default_value = table->find("default"))
      key.default_value = value(key, *default_value, whole).value_or(Value());
    return key;
  }

  // Where a field goes; its type follows from that. Nowhere: it is read by other means.
  using Field = std::variant<std::monostate, std::string*, std::vector<std::string>*, std::optional<double>*, bool*>;

  void fill(const TomlTable& table, const std::string& whole, const std::map<std::string, Field>& fields) {
    const char* const types[] = {"", "string", "list<string>", "float", "bool"};
    std::vector<std::string> names;
    for (const auto& [name, field] : fields) names.push_back(name);
    for (const TomlEntry& entry : table.entries) {
      const auto field = fields.find(entry.key);
      if (field == fields.end()) broken(entry, whole + " has no field `" + entry.key + "`: " + join(names, " "));
      if (field == fields.end() || field->second.index() == 0) continue;
      KeySchema schema;
      schema.type = types[field->second.index()];
      const std::optional<Value> read = value(schema, entry.value, whole + "." + entry.key);
      if (!read) continue;
      if (auto* const* text = std::get_if<std::string*>(&field->second)) **text = read->as_text();
      if (auto* const* texts = std::get_if<std::vector<std::string>*>(&field->second)) **texts = read->as_texts();
      if (auto* const* number = std::get_if<std::optional<double>*>(&field->second)) **number = read->as_float();
      if (auto* const* flag = std::get_if<bool*>(&field->second)) **flag = read->as_bool();
    }
  }

  std::optional<Value> value(const KeySchema& key, const TomlNode& node, const std::string& whole) {
    Report inner;
    std::optional<Value> checked = check_value(key, node, whole, inner);
    for (const Diagnostic& d : inner.all()) add(d);
    return checked;
  }

  void add(Diagnostic d) {
    d.code = "schema_broken";
    d.exit = kExitPlugin;
    report_.add(std::move(d));
  }

  const std::string& owner_;
  Report& report_;
};

CoreSchema read_core_schema() {
  Report report;
  CoreSchema schema;
  const std::optional<TomlTable> root = parse_toml(kCoreSchema, "core_schema.toml", report);
  for (const TomlEntry& entry : root ? root->entries : std::vector<TomlEntry>()) {
    if (const TomlList* later = entry.value.list()) {
      for (const TomlNode& key : *later) schema.later.push_back(*key.text());
      continue;
    }
    TableSchema table{SchemaReader(entry.key, report).keys(*entry.value.table(), {}), {}};
    for (auto& [name, key] : table.keys)
      key.default_value.origin = {"default of " + entry.key + "." + name, 0, 0, entry.key + "." + name};
    (entry.key == "parameters"     ? schema.rule
     : entry.key == "every_plugin" ? schema.reserved
                                   : schema.tables[entry.key]) = std::move(table);
  }
  // Written by us, tested, and part of the binary.
  if (report.has_errors()) throw Failure(report.all().front());
  return schema;
}

}  // namespace

bool CoreSchema::is_family(const std::string& table) const {
  return tables.contains(table) && std::ranges::find(kNoFamilies, table) == std::end(kNoFamilies);
}

const CoreSchema& core_schema() {
  static const CoreSchema schema = read_core_schema();
  return schema;
}

void read_plugin_schema(const TomlTable& plugin_toml, PluginSchema& schema, Report& report) {
  SchemaReader reader(schema.id, report);
  const auto table_of = [&](std::string_view name) -> TomlTable {
    const auto entry = std::ranges::find(plugin_toml.entries, name, &TomlEntry::key);
    if (entry == plugin_toml.entries.end()) return {};
    if (entry->value.is_table()) return *entry->value.table();
    reader.broken(*entry, "`" + entry->key + "` is a table");
    return {};
  };
  const TomlTable presets = table_of("preset"), config = table_of("config");
  std::vector<std::string> preset_names;
  for (const TomlEntry& preset : presets.entries) preset_names.push_back(preset.key);
  for (const TomlEntry& entry : config.entries)
    if (core_schema().reserved.keys.contains(entry.key))
      reader.broken(entry, "`" + entry.key + "` is read by the host in every plugin's table");
  const std::string origin = "plugin.toml of " + schema.id;
  schema.config.keys = reader.keys(config, preset_names);
  for (auto& [name, key] : schema.config.keys)
    if (key.default_value.is_set()) key.default_value.origin = {origin, 0, 0, schema.id + "." + name};

  if (!presets.entries.empty() && !schema.config.keys.contains("preset"))
    reader.broken(presets.entries[0], "presets need a key `preset` of type choice");
  std::map<std::string, KeySchema> preset_keys = schema.config.keys;
  preset_keys.erase("preset");
  for (const TomlEntry& preset : presets.entries) {
    const std::string name = "preset " + preset.key;
    if (preset.value.is_table())
      schema.config.presets[preset.key] = reader.values(*preset.value.table(), preset_keys, schema.id, name, name);
    else reader.broken(preset, "`preset." + preset.key + "` is a table of keys");
  }
  const auto family = core_schema().tables.find(schema.family);
  const TableSchema& family_schema = family == core_schema().tables.end() ? TableSchema() : family->second;
  schema.family_defaults =
      reader.values(table_of("family_defaults"), family_schema.keys, schema.family, "[family_defaults]", origin);
}

}  // namespace mortise
