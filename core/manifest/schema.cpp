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

// Of a list, its elements' type.
std::string_view element_type(std::string_view type) {
  return type.starts_with("list<") ? type.substr(5, type.size() - 6) : type;
}

// As values of a duration are compared with its choices.
bool is_unit(const std::string& word) {
  const std::optional<Amount> one = parse_amount("1 " + word);
  return one && unit_name(one->unit) == word;
}

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
    for (const TomlEntry& entry : config.entries)
      if (const auto read = keys.find(entry.key); read != keys.end()) check_names(entry, read->second, config);
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

  std::nullopt_t broken(const TomlEntry& at, const std::string& message, const std::string& fix = "") {
    add(mistake("schema_broken", message, position(at.at), fix));
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
    if (!is_known_type(key.type)) {
      const TomlNode* type = table->find("type");
      return broken(entry, type ? whole + ": there is no type `" + key.type + "`" : whole + " has no type",
                    nearest_type(key.type));
    }
    if (const std::string why = contradiction(key); !why.empty()) return broken(entry, whole + ": " + why);
    if (is_of_plugin() && (key.per_provider || !key.same_as.empty()))
      return broken(entry, whole + ": same_as and per_provider are for tables of the core, here nobody reads them");
    if (const TomlNode* default_value = table->find("default"))
      key.default_value = value(key, *default_value, whole).value_or(Value());
    return key;
  }

  bool is_of_plugin() const { return owner_.find('.') != std::string::npos; }

  // What a key says of others in its table: `use` names one (of another table "TABLE.KEY"), `aka` none.
  void check_names(const TomlEntry& entry, const KeySchema& key, const TomlTable& config) {
    const std::string whole = owner_ + "." + key.name;
    for (const std::string& other : key.aka)
      if (config.find(other)) broken(entry, whole + ": aka `" + other + "` is a key of its own");
    const std::string use = key.deprecated ? key.deprecated->use : "";
    if (!use.empty() && use.find('.') == std::string::npos && (use == key.name || !config.find(use)))
      broken(entry, whole + ": deprecated.use is `" + use + "`, which is no other key of " + owner_);
  }

  // What a field says that another leaves without effect, or that no value could meet; "" if nothing.
  static std::string contradiction(const KeySchema& key) {
    const auto is = [&](std::initializer_list<std::string_view> types) {
      return std::ranges::find(types, element_type(key.type)) != types.end();
    };
    const bool choice = is({"choice"}), duration = is({"duration"});
    if (choice && key.choices.empty()) return "a choice needs `choices`";
    if (!choice && !duration && !key.choices.empty()) return "`choices` are for a choice or a duration";
    if (duration)
      for (const std::string& unit : key.choices)
        if (!is_unit(unit)) return "`" + unit + "` is no unit of a duration";
    if ((key.min || key.max || key.exclusive_min) && !is({"int", "float", "duration", "amount", "bytes"}))
      return "bounds are for numbers, this is " + key.type;
    if (key.min && key.max && *key.min > *key.max) return "min is more than max";
    if (key.exclusive_min && key.max && *key.exclusive_min >= *key.max) return "exclusive_min leaves nothing below max";
    if (key.change != "free" && key.change != "numeric" && key.change != "fixed")
      return "change is free, numeric or fixed";
    return "";
  }

  // Where a field goes; its type follows from that. Nowhere: it is read by other means.
  using Field = std::variant<std::monostate, std::string*, std::vector<std::string>*, std::optional<double>*, bool*>;

  void fill(const TomlTable& table, const std::string& whole, const std::map<std::string, Field>& fields) {
    const char* const types[] = {"", "string", "list<string>", "float", "bool"};
    std::vector<std::string> names;
    for (const auto& [name, field] : fields)
      if (!is_of_plugin() || (name != "same_as" && name != "per_provider")) names.push_back(name);
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

// The table of the plugin's family, or of a point that it provides, that has a key of this name; "" if none has.
std::string family_with(const std::string& key, const PluginSchema& schema) {
  std::vector<std::string> families = schema.provides;
  families.insert(families.begin(), schema.family);
  const auto has_it = [&](const std::string& family) {
    return core_schema().is_family(family) && core_schema().tables.at(family).keys.contains(key);
  };
  const auto found = std::ranges::find_if(families, has_it);
  return found == families.end() ? "" : *found;
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
  for (const TomlEntry& entry : config.entries) {
    if (core_schema().reserved.keys.contains(entry.key))
      reader.broken(entry, "`" + entry.key + "` is read by the host in every plugin's table");
    else if (const std::string shared = family_with(entry.key, schema); !shared.empty())
      reader.broken(entry, "`" + entry.key + "` is a key of [" + shared +
                               "], which the user sets for all of the family; what holds where nobody does stands in "
                               "[family_defaults]");
  }
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
