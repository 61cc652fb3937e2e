#include "core/manifest/schema.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"

// core_schema.toml, byte for byte.
__asm__(
    ".pushsection .rodata\n"
    "mortise_core_schema_begin:\n"
    ".incbin \"" MORTISE_CORE_SCHEMA
    "\"\n"
    "mortise_core_schema_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" {
extern const char mortise_core_schema_begin[] __attribute__((visibility("hidden")));
extern const char mortise_core_schema_end[] __attribute__((visibility("hidden")));
}

namespace mortise {
namespace {

constexpr std::string_view kNoFamilies[] = {"run", "eval", "plugins", "parameters"};

// Mistakes of a plugin.toml are its author's, not the user's: one code, one exit.
class SchemaReader {
 public:
  SchemaReader(const std::string& file, Report& report) : file_(file), report_(report) {}

  std::optional<KeySchema> key(const TomlEntry& entry, const std::string& owner, const std::vector<std::string>& presets) {
    const std::string whole = owner + "." + entry.key;
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
          {"config_json", &key.config_json},
          {"min", &key.min},
          {"max", &key.max},
          {"above", &key.above},
          {"default", Read()},
          {"deprecated", Read()}});
    const TomlNode* standard = table->find("default");
    if (const TomlNode* old = table->find("deprecated"); old != nullptr && old->is_table()) {
      Deprecation& d = key.deprecated.emplace();
      fill(*old->table(), whole + ".deprecated", {{"since", &d.since}, {"use", &d.use}, {"remove", &d.remove}});
    } else if (old != nullptr) {
      broken(entry, whole + ".deprecated is { since = …, use = …, remove = … }");
    }
    // The names of the presets are choices of the key that selects one.
    if (key.name == "preset") key.choices.insert(key.choices.end(), presets.begin(), presets.end());
    if (!is_known_type(key.type)) return broken(entry, whole + " has no type `" + key.type + "`");
    if (key.type.find("choice") != std::string::npos && key.choices.empty()) return broken(entry, whole + ": a choice needs `choices`");
    if (key.change != "free" && key.change != "numeric" && key.change != "fixed") return broken(entry, whole + ": change is free, numeric or fixed");
    if (key.min && key.max && *key.min > *key.max) return broken(entry, whole + ": min is more than max");
    if (standard != nullptr) key.standard = value(key, *standard, whole).value_or(Value());
    return key;
  }

  std::nullopt_t broken(const TomlEntry& at, const std::string& message) {
    add(mistake("schema_broken", message, position_of(file_, at)));
    return std::nullopt;
  }

  // A default, a value of a preset or of [family_defaults].
  std::optional<Value> value(const KeySchema& key, const TomlNode& node, const std::string& whole) {
    Report inner;
    std::optional<Value> checked = check_value(key, node, {file_, whole}, inner);
    for (const Diagnostic& d : inner.all()) add(d);
    return checked;
  }

 private:
  void add(Diagnostic d) {
    d.code = "schema_broken";
    d.exit = kExitPlugin;
    report_.add(std::move(d));
  }

  // Where a field goes; its type follows from that. Nowhere: it is read by other means.
  using Read = std::variant<std::monostate, std::string*, std::vector<std::string>*, std::optional<double>*>;

  void fill(const TomlTable& table, const std::string& whole, const std::map<std::string, Read>& fields) {
    const char* const types[] = {"", "string", "list<string>", "float"};
    for (const TomlEntry& entry : table.entries) {
      const auto field = fields.find(entry.key);
      std::vector<std::string> names;
      for (const auto& [name, read] : fields) names.push_back(name);
      if (field == fields.end()) broken(entry, whole + " has no field `" + entry.key + "`: " + join(names, " "));
      if (field == fields.end() || field->second.index() == 0) continue;
      KeySchema schema;
      schema.type = types[field->second.index()];
      const std::optional<Value> read = value(schema, entry.value, whole + "." + entry.key);
      if (!read) continue;
      if (auto* const* text = std::get_if<std::string*>(&field->second)) **text = read->as_text();
      if (auto* const* texts = std::get_if<std::vector<std::string>*>(&field->second)) **texts = read->as_texts();
      if (auto* const* number = std::get_if<std::optional<double>*>(&field->second)) **number = read->as_float();
    }
  }

  const std::string& file_;
  Report& report_;
};

TableSchema read_keys(const TomlTable& config, const std::vector<std::string>& presets, const std::string& owner, SchemaReader& reader) {
  TableSchema schema;
  for (const TomlEntry& entry : config.entries) {
    if (!is_name(entry.key))
      reader.broken(entry, "a key is [a-z][a-z0-9_]*, this is `" + entry.key + "`");
    else if (std::optional<KeySchema> key = reader.key(entry, owner, presets))
      schema.keys[entry.key] = std::move(*key);
  }
  return schema;
}

void read_preset(const TomlEntry& preset, PluginSchema& schema, SchemaReader& reader) {
  if (!preset.value.is_table()) {
    reader.broken(preset, "`preset." + preset.key + "` is a table of keys");
    return;
  }
  std::map<std::string, Value>& values = schema.config.presets[preset.key];
  for (const TomlEntry& entry : preset.value.table()->entries) {
    const auto key = schema.config.keys.find(entry.key);
    if (key == schema.config.keys.end() || entry.key == "preset") {
      reader.broken(entry, "preset " + preset.key + " names `" + entry.key + "`, which is no key of " + schema.id);
      continue;
    }
    if (std::optional<Value> value = reader.value(key->second, entry.value, schema.id + "." + entry.key)) {
      value->origin = {"preset " + preset.key, 0, 0, schema.id + "." + entry.key};
      values[entry.key] = std::move(*value);
    }
  }
}

void read_family_default(const TomlEntry& entry, PluginSchema& schema, SchemaReader& reader) {
  const auto family = core_schema().tables.find(schema.family);
  if (family == core_schema().tables.end() || !family->second.keys.contains(entry.key)) {
    reader.broken(entry, "[family_defaults] names `" + entry.key + "`, which is no key of [" + schema.family + "]");
    return;
  }
  const std::string whole = schema.family + "." + entry.key;
  if (std::optional<Value> value = reader.value(family->second.keys.at(entry.key), entry.value, whole)) {
    value->origin = {"plugin.toml of " + schema.id, 0, 0, whole};
    schema.family_defaults[entry.key] = std::move(*value);
  }
}

CoreSchema read_core_schema() {
  Report report;
  const std::string file = "core_schema.toml";
  const std::string_view text(mortise_core_schema_begin, static_cast<size_t>(mortise_core_schema_end - mortise_core_schema_begin));
  CoreSchema schema;
  const std::optional<TomlTable> root = parse_toml(text, file, report);
  if (!root) throw Failure(report.all().front());
  for (const TomlEntry& entry : root->entries) {
    if (entry.key == "later") {
      for (const TomlNode& element : *entry.value.list()) schema.later.push_back(*element.text());
      continue;
    }
    TableSchema table = read_table_schema(*entry.value.table(), file, entry.key, report);
    for (auto& [name, key] : table.keys) key.standard.origin = {"default of " + entry.key + "." + name, 0, 0, entry.key + "." + name};
    (entry.key == "parameters" ? schema.rule : entry.key == "every_plugin" ? schema.reserved : schema.tables[entry.key]) = std::move(table);
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

TableSchema read_table_schema(const TomlTable& config, const std::string& shown_name, const std::string& owner, Report& report) {
  SchemaReader reader(shown_name, report);
  return read_keys(config, {}, owner, reader);
}

void read_plugin_schema(const TomlTable& plugin_toml, const std::string& shown_name, PluginSchema& schema, Report& report) {
  SchemaReader reader(shown_name, report);
  const auto entries_of = [&](std::string_view name) -> std::vector<TomlEntry> {
    for (const TomlEntry& entry : plugin_toml.entries) {
      if (entry.key != name) continue;
      if (entry.value.is_table()) return entry.value.table()->entries;
      reader.broken(entry, "`" + entry.key + "` is a table");
    }
    return {};
  };
  const std::vector<TomlEntry> presets = entries_of("preset");
  std::vector<std::string> preset_names;
  for (const TomlEntry& preset : presets) preset_names.push_back(preset.key);

  TomlTable config{entries_of("config")};
  for (const TomlEntry& entry : config.entries)
    if (core_schema().reserved.keys.contains(entry.key)) reader.broken(entry, "`" + entry.key + "` is read by the host in every plugin's table");
  schema.config = read_keys(config, preset_names, schema.id, reader);
  if (!presets.empty() && !schema.config.keys.contains("preset")) reader.broken(presets[0], "presets need a key `preset` of type choice");
  for (auto& [name, key] : schema.config.keys)
    if (key.standard.is_set()) key.standard.origin = {"plugin.toml of " + schema.id, 0, 0, schema.id + "." + name};
  for (const TomlEntry& preset : presets) read_preset(preset, schema, reader);
  for (const TomlEntry& entry : entries_of("family_defaults")) read_family_default(entry, schema, reader);
}

}  // namespace mortise
