#include "core/manifest/manifest.hpp"

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <set>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/manifest/layers.hpp"
#include "core/manifest/path.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise {
namespace {

constexpr std::string_view kRules = "parameters", kRule = "parameters.";
constexpr size_t kLongestLine = 160;

// A core table, a family, a plugin's table or a [parameters.NAME]: who wrote it last, and what every key says.
struct MergedTable {
  struct Written {
    Value value;
    size_t layer = 0;
  };
  size_t layer = 0;  // the highest that has it
  int height = 0;    // above which tables it stands: of lower layers, and in this one as `layer` says
  Position origin;   // in that layer
  bool enabled = true;
  std::map<std::string, Written> keys;
  std::set<std::string> wrong;  // keys that are written, with a value that was refused

  const Written* find(const std::string& key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? nullptr : &found->second;
  }
  // Takes the places that nobody else claims.
  bool is_open() const { return !keys.contains("where") && !keys.contains("modes"); }
  // Not inherited: below, it was written for other circumstances.
  const Value* own(const std::string& key) const {
    const Written* written = find(key);
    return written != nullptr && written->layer >= layer ? &written->value : nullptr;
  }
};

// A family's key in the table of a provider.
struct FamilyKey {
  std::string provider, key;
  TomlNode value;
  Position at;
  size_t layer;
};

// The layers on top of one another. Unknown names and wrong values are found layer by layer, whether or not a later
// layer replaces them.
class Merger {
 public:
  Merger(const ManifestRequest& request, Report& report)
      : request_(request), words_(request), report_(report), layers_(read_layers(request, report)),
        all_read_(!report.has_errors()) {
    for (const Layer& layer : layers_) {
      for (const TomlEntry& entry : layer.root.entries) root_entry(entry);
      ++layer_;
    }
    layers_.push_back({"command line", current_folder(), {}, {}});
  }

  Manifest manifest() {
    Manifest manifest;
    manifest.path = request_.file;
    for (const Layer& layer : layers_) manifest.layers.push_back(layer.name);
    for (const std::string& id : request_.use) use(id);
    settle_heights();
    for (const std::string& id : request_.without) without(id);
    const std::vector<Setting> settings = read_settings(request_.set, report_);
    warn_of_doubles(settings);
    // Without one of the files, nobody knows what is on.
    if (!all_read_) return manifest;
    for (const Setting& setting : settings) set(setting);
    settle_heights();
    settle_family_keys();
    complete_core_tables(manifest);
    for (const auto& [name, table] : tables_) {
      if (const PluginSchema* schema = words_.plugin(name)) manifest.plugins.push_back(plugin(*schema, table));
      if (name.starts_with(kRule) && table.enabled) add_rule(manifest, name, table);
    }
    manifest.name = name_of(manifest.tables["run"]["name"]);
    manifest.unread = unread_;
    manifest.refused = refused_;
    return manifest;
  }

  std::vector<std::string> plugin_paths() {
    for (const Setting& setting : read_settings(request_.set, report_)) set(setting);
    return complete(core_schema().tables.at("plugins"), tables_["plugins"], true).at("path").as_texts();
  }

  // In the order in which people read their files: lowest layer first, then by line; what has no line as it was found.
  std::vector<Diagnostic> in_order(std::vector<Diagnostic> all) const {
    const auto place = [&](const Diagnostic& d) {
      if (d.positions.empty()) return std::tuple(layers_.size() + 1, 0, 0);
      const Position& at = d.positions[0];
      return std::tuple(static_cast<size_t>(std::ranges::find(layers_, at.file, &Layer::name) - layers_.begin()),
                        at.line, at.column);
    };
    std::ranges::stable_sort(all, {}, place);
    for (Diagnostic& d : all)
      if (!d.positions.empty() && (d.code == "wrong_type" || d.code == "value_for_table" || d.code == "toml_syntax"))
        d.source_line = line_at(d.positions[0]);
    return all;
  }

 private:
  void root_entry(const TomlEntry& entry) {
    const std::string& name = entry.key;
    const bool family = words_.is_family(name), known = family || name == kRules || words_.is_core_table(name);
    const TomlTable* table = entry.value.table();
    if (name == "include") return;
    if (table == nullptr && family)
      return report_.add(words_.value_for_table("", name, entry.value, position(entry.at)));
    if (table == nullptr && !known) return report_.add(words_.unknown_key("", name, entry.value, position(entry.at)));
    if (table == nullptr)
      return refuse("wrong_type", name + " is a table, this is " + entry.value.kind(), position(entry.at),
                    "[" + name + "]");
    // Where a table inside it looks like a plugin's, that is what was meant, and what the message speaks of.
    if (!known && std::ranges::none_of(table->entries, [](const TomlEntry& inner) { return inner.value.is_table(); }))
      return report_.add(words_.unknown_table(name, position(entry.value.at)));
    for (const TomlEntry& inner : table->entries) {
      if (!known && !inner.value.is_table()) continue;
      if (is_refused(name + "." + inner.key)) continue;
      if (!known) report_.add(words_.unknown_table(name + "." + inner.key, position(inner.value.at)));
      else if (family) family_entry(name, inner);
      else if (name != kRules) write(name, inner.key, inner.value, position(inner.at));
      else if (is_name(inner.key)) own_table("parameters." + inner.key, inner.value);
      else
        refuse("bad_name", "a name is small letters, digits and _, this is `" + inner.key + "`", position(inner.at),
               "[parameters.no_decay]");
    }
  }

  void family_entry(const std::string& family, const TomlEntry& entry) {
    const std::string id = family + "." + entry.key;
    const bool plugin = words_.plugin(id) != nullptr, table = entry.value.is_table();
    if (words_.key(family, entry.key) != nullptr || (!plugin && (!table || entry.key == "include")))
      write(family, entry.key, entry.value, position(entry.at));
    else if (is_refused(id)) return;
    else if (!plugin) report_.add(words_.unknown_table(id, position(entry.value.at)));
    else if (table || entry.value.list() != nullptr) own_table(id, entry.value);
    else report_.add(words_.value_for_table(family, entry.key, entry.value, position(entry.at)));
  }

  // A table of such a plugin cannot be checked; that its plugin.toml was refused is said elsewhere.
  bool is_refused(const std::string& id) {
    if (!request_.refused.contains(id)) return false;
    unread_.insert(id);
    return true;
  }

  // Of a plugin or a rule.
  void own_table(const std::string& name, const TomlNode& node) {
    if (!node.is_table())
      return refuse("wrong_type", name + " is a table, this is " + node.kind(), position(node.at), "[" + name + "]");
    switch_table(name, position(node.at), true);  // presence is choice; `enabled` of a lower layer is not inherited
    for (const TomlEntry& inner : node.table()->entries) write(name, inner.key, inner.value, position(inner.at));
  }

  void switch_table(const std::string& name, const Position& by, bool on) {
    MergedTable& table = tables_[name];
    table.layer = layer_;
    table.origin = by;
    table.enabled = on;
  }

  void write(const std::string& table, const std::string& key, const TomlNode& value, const Position& at) {
    const std::string whole = table + "." + key;
    const KeySchema* schema = words_.key(table, key);
    if (schema == nullptr && key == "include")
      return refuse("include_placement", "`include` stands inside [" + table + "]", at,
                    "move it to the top of the file, before the first table (a key belongs to the table above it)");
    if (schema == nullptr && words_.family_key(table, key) != nullptr)
      return family_keys_.push_back({table, key, value, at, layer_});
    if (schema == nullptr) return report_.add(words_.unknown_key(table, key, value, at));
    std::optional<Value> checked = check_value(with_default(*schema, table), value, whole, report_);
    if (!checked) {
      tables_[table].wrong.insert(key);
      return;
    }
    if (const std::optional<Deprecation>& old = schema->deprecated)
      warn("deprecated_key", whole + " is deprecated since " + old->since, at, "use " + old->use,
           old->remove.empty() ? "" : "it will be gone in " + old->remove);
    if (key == "fallback") check_fallback(table, *checked);
    if (key == "enabled") tables_[table].enabled = checked->as_bool();
    tables_[table].keys[key] = {std::move(*checked), layer_};
  }

  // A family's key without a default of its own has that of the plugin in use, which a fix proposes.
  KeySchema with_default(const KeySchema& schema, const std::string& table) const {
    const PluginSchema* used = words_.plugin(table);
    for (const Layer& layer : layers_)
      if (const TomlNode* family = layer.root.find(table); used == nullptr && family != nullptr && family->is_table())
        for (const TomlEntry& entry : family->table()->entries)
          if (const PluginSchema* named = words_.plugin(table + "." + entry.key)) used = named;
    KeySchema with = schema;
    if (used == nullptr || !schema.per_provider || with.default_value.is_set()) return with;
    if (const auto found = used->family_defaults.find(schema.name); found != used->family_defaults.end())
      with.default_value = found->second;
    return with;
  }

  void check_fallback(const std::string& id, const Value& value) {
    const PluginSchema* owner = words_.plugin(id);
    if (owner == nullptr) return;
    if (owner->provides.empty())
      refuse("fallback_without_place", id + " provides nothing, so nobody can take its place", value.origin,
             "leave `fallback` out");
    // default.toml is of every build, and one may have fewer plugins.
    if (layer_ == 0 && !request_.default_file.empty()) return;
    for (const Value& other : value.as_list())
      if (words_.plugin(other.as_text()) == nullptr && !request_.refused.contains(other.as_text()))
        report_.add(words_.unknown_plugin(other.as_text(), "", other.origin));
  }

  void use(const std::string& id) {
    const Position from{"command line: --use " + id, 0, 0, id};
    if (is_refused(id)) return;
    if (words_.plugin(id) == nullptr) return report_.add(words_.unknown_plugin(id, "--use ", from));
    switch_table(id, from, true);
  }

  void without(const std::string& id) {
    const Position from{"command line: --without " + id, 0, 0, id};
    refused_[id] = "--without " + id;
    if (request_.refused.contains(id)) {
      unread_.erase(id);
      return;
    }
    const auto found = tables_.find(id);
    const bool on = found != tables_.end() && found->second.enabled,
               rule = id.starts_with(kRule) && found != tables_.end();
    if (words_.plugin(id) == nullptr && !rule) return report_.add(words_.unknown_plugin(id, "--without ", from));
    if (on && found->second.layer == layer_) return refuse_both(id, from);
    if (!on && (found != tables_.end() || !is_fallback(id)))
      return warn("not_on", id + " is not on", from, "leave out --without " + id);
    switch_table(id, from, false);
  }

  void refuse_both(const std::string& id, const Position& from) {
    refuse("use_and_without", id + " is asked for and refused", from, "leave out --use " + id + " or " + refused_[id]);
  }

  void warn_of_doubles(const std::vector<Setting>& settings) {
    std::set<std::string> seen;
    for (const Setting& setting : settings)
      if (!seen.insert(setting.at.key).second)
        warn("set_twice", setting.at.key + " is set twice; the last one counts", setting.at);
  }

  void set(const Setting& setting) {
    const std::string& whole = setting.at.key;
    const std::vector<std::string> path = split(whole, '.');
    const bool core = words_.is_core_table(path[0]), rule = path[0] == kRules,
               known = core || rule || words_.is_family(path[0]);
    if (path.size() == 1 && !known) return report_.add(words_.unknown_key("", whole, setting.value, setting.at));
    if (path.size() == 1)
      return refuse("set_not_on", "`" + whole + "` is a table, and --set sets keys", setting.at,
                    "--use " + whole + ".NAME, or --set " + whole + ".KEY=VALUE");
    const bool own = path.size() > 2;  // of a plugin or a rule
    const std::string table = own ? path[0] + "." + path[1] : path[0], key = whole.substr(table.size() + 1);
    if (request_.refused.contains(table)) return;
    if (!known) return report_.add(words_.unknown_table(table, setting.at));
    if (own && core) return report_.add(words_.unknown_key(path[0], path[1], setting.value, setting.at));
    if (own && !rule && words_.plugin(table) == nullptr)
      return report_.add(words_.unknown_plugin(table, "--use ", setting.at));
    if (words_.key(table, key) == nullptr && words_.plugin(whole) != nullptr)
      return refuse("set_not_on", "`" + whole + "` is a plugin, and --set sets keys", setting.at, "--use " + whole);
    if (words_.key(table, key) == nullptr && words_.family_key(table, key) == nullptr)
      return report_.add(words_.unknown_key(table, key, setting.value, setting.at));
    if (own && !is_on(table, setting)) return;
    if (!setting.to_default) {
      write(table, key, setting.value, setting.at);
      if (key != "enabled" || tables_[table].enabled) return;
      refused_[table] = setting.at.typed();
      if (std::ranges::count(request_.use, table) > 0) refuse_both(table, setting.at);
      return;
    }
    tables_[table].keys.erase(key);
    std::erase_if(family_keys_, [&](const FamilyKey& each) { return each.provider == table && each.key == key; });
    if (key == "enabled") tables_[table].enabled = true;
  }

  // Whether a plugin's or rule's table is on, so that a key of it can be set; else says so. Whoever sets a key of a
  // plugin that a `fallback` names, names it.
  bool is_on(const std::string& id, const Setting& setting) {
    if (!tables_.contains(id) && is_fallback(id)) {
      switch_table(id, setting.at, true);
      settle_heights();
    }
    const auto found = tables_.find(id);
    const bool on = found != tables_.end() && found->second.enabled, plugin = words_.plugin(id) != nullptr;
    const std::string by = on && plugin ? replaced_by(id) : "";
    if (!by.empty()) {
      Position of = tables_.at(by).origin;
      of.column = 0;
      refuse("set_not_on", id + " is not on: " + by + " (" + of.text() + ") replaced it", setting.at,
             "leave it out, or " + in_place_of("--use " + id, {of.typed()}));
    } else if (!on) {
      const std::string assigned = setting.at.key.ends_with(".enabled") ? "" : " " + setting.at.typed();
      const auto off = refused_.find(id);
      refuse("set_not_on", id + " is not on, so `" + setting.at.key + "` sets nothing", setting.at,
             plugin ? in_place_of("--use " + id + assigned, {off == refused_.end() ? "" : off->second})
                    : "[" + id + "] in a file");
    }
    return on && by.empty();
  }

  // A table that takes part would have it take its place.
  bool is_fallback(const std::string& id) const {
    return std::ranges::any_of(tables_, [&](const auto& each) {
      const Value* others = each.second.own("fallback");
      return others != nullptr && takes_part(each.first) && std::ranges::count(others->as_texts(), id) > 0;
    });
  }

  // The plugin of a higher layer that takes every place of this one; "" if none does. Which places, in detail, is the
  // plan's.
  std::string replaced_by(const std::string& id) const {
    const auto taker = [&](std::vector<std::string> PluginSchema::* of, const std::string& place) -> std::string {
      for (const auto& [other, table] : tables_) {
        const PluginSchema* plugin = words_.plugin(other);
        if (plugin != nullptr && table.enabled && table.height > tables_.at(id).height && table.is_open() &&
            std::ranges::count(plugin->*of, place) > 0)
          return other;
      }
      return "";
    };
    for (const std::string& group : words_.plugin(id)->exclusive)
      if (std::string by = taker(&PluginSchema::exclusive, group); !by.empty()) return by;
    std::string by;
    for (const std::string& point : words_.plugin(id)->provides)
      if (by = taker(&PluginSchema::provides, point); by.empty()) return "";
    return by;
  }

  bool takes_part(const std::string& id) const { return tables_.at(id).enabled && replaced_by(id).empty(); }

  // A run.toml says in one file what came from several: its tables stand above one another as their key `layer` says.
  void settle_heights() {
    std::vector<int> most(layers_.size()), lowest(layers_.size());
    const auto own = [](const MergedTable& table) {
      const Value* said = table.own("layer");
      return said != nullptr ? std::optional(static_cast<int>(said->as_int())) : std::nullopt;
    };
    for (const auto& [id, table] : tables_) most[table.layer] = std::max(most[table.layer], own(table).value_or(0));
    for (size_t i = 1; i < layers_.size(); ++i) lowest[i] = lowest[i - 1] + most[i - 1] + 1;
    for (auto& [id, table] : tables_) table.height = lowest[table.layer] + own(table).value_or(most[table.layer]);
  }

  // Only now is it known which providers are on: with one of them, the family's table is the place of such a key.
  void settle_family_keys() {
    std::map<std::string, int> providers;  // of each family
    for (const auto& [id, table] : tables_)
      if (const PluginSchema* plugin = words_.plugin(id);
          plugin != nullptr && !plugin->provides.empty() && takes_part(id))
        ++providers[plugin->family];
    for (const auto& [id, key, value, at, layer] : family_keys_) {
      if (!takes_part(id)) continue;
      if (providers[words_.plugin(id)->family] < 2) report_.add(words_.unknown_key(id, key, value, at));
      else if (std::optional<Value> checked =
                   check_value(with_default(*words_.family_key(id, key), id), value, id + "." + key, report_))
        tables_[id].keys[key] = {std::move(*checked), layer};
    }
  }

  // What every key says: what is written, else the preset's value, else the default. `resolve`: what paths mean here.
  std::map<std::string, Value> complete(const TableSchema& schema, const MergedTable& table, bool resolve) {
    std::map<std::string, Value> values;
    for (const auto& [key, key_schema] : schema.keys) {
      const auto* written = table.find(key);
      values[key] = written != nullptr ? written->value : key_schema.default_value;
    }
    const auto chosen = values.find("preset");
    if (!schema.presets.empty() && chosen->second.is_set() && schema.presets.contains(chosen->second.as_text()))
      for (const auto& [key, value] : schema.presets.at(chosen->second.as_text()))
        if (table.find(key) == nullptr) values[key] = value;
    for (auto& [key, value] : values)
      if (resolve && value.is_set() && is_path_type(schema.keys.at(key).type))
        resolve_paths(value, table.find(key) != nullptr ? layers_[table.find(key)->layer].folder : current_folder(),
                      report_, request_.recorded);
    return values;
  }

  void complete_core_tables(Manifest& manifest) {
    for (const auto& [name, schema] : core_schema().tables)
      manifest.tables[name] = complete(schema, tables_[name], true);
    for (const auto& [name, schema] : core_schema().tables)
      for (const auto& [key, key_schema] : schema.keys) {
        Value& value = manifest.tables[name][key];
        if (value.is_set() || key_schema.same_as.empty()) continue;
        const std::vector<std::string> other = split(key_schema.same_as, '.');
        value = manifest.get(other[0], other[1]);
      }
    manifest.tables.erase("order");
    for (const auto& [point, written] : tables_["order"].keys) manifest.tables["order"][point] = written.value;
  }

  PluginTable plugin(const PluginSchema& schema, const MergedTable& table) {
    PluginTable out{&schema, table.origin, table.height, table.enabled, {}, {}, {}, {}, {}};
    // What is off or replaced may point to files that are not there.
    out.values = complete(schema.config, table, takes_part(schema.id));
    for (const auto& [key, written] : table.keys)
      if (words_.key(schema.id, key) == nullptr) out.values[key] = written.value;  // a family_key
    if (const auto* where = table.find("where")) out.where = where->value.as_selector();
    const std::vector<std::string>& modes = core_schema().reserved.keys.at("modes").choices;
    if (const auto* written = table.find("modes"))
      for (const std::string& mode : written->value.as_texts())
        out.modes.push_back(static_cast<int>(std::ranges::find(modes, mode) - modes.begin()));
    if (const Value* fallback = table.own("fallback"))
      for (const std::string& other : fallback->as_texts()) {  // whoever turned it off does not want it here either
        const auto found = tables_.find(other);
        const bool off = found != tables_.end() && !found->second.enabled;
        if (!off) out.fallback.push_back(other);
        else out.off.push_back(other);
      }
    return out;
  }

  void add_rule(Manifest& manifest, const std::string& id, const MergedTable& table) {
    if (table.find("where") == nullptr && table.wrong.contains("where")) return;
    if (table.find("where") == nullptr)
      return refuse("missing_key", "[" + id + "] has no `where`", table.origin,
                    "where = \"role:norm\"   (which parameters: globs, role: tag: dim:)");
    if (table.find("lr") != nullptr && table.find("lr_scale") != nullptr)
      return refuse("two_rates", "[" + id + "] has both `lr` and `lr_scale`", table.find("lr_scale")->value.origin,
                    "leave one out");
    ParameterRule rule{
        id.substr(kRule.size()), table.find("where")->value.as_selector(), table.height, {}, table.origin};
    for (const auto& [key, written] : table.keys)
      if (key != "where" && key != "enabled" && key != "layer") rule.values[key] = written.value;
    manifest.rules.push_back(std::move(rule));
  }

  // run.name, else the stem of the file with what no name may have replaced.
  std::string name_of(Value& written) {
    constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const auto is_allowed = [&](const std::string& name) {
      return !name.empty() && name != "." && name != ".." && name.find_first_not_of(kAllowed) == std::string::npos;
    };
    const auto mended = [&](std::string name) {
      for (size_t at; (at = name.find_first_not_of(kAllowed)) != std::string::npos;) name[at] = '-';
      return is_allowed(name) ? name : "run";
    };
    if (written.is_set()) {
      if (is_allowed(written.as_text())) return written.as_text();
      refuse("bad_name", "a run's name is letters, digits, `.`, `_` and `-`, this is `" + written.as_text() + "`",
             written.origin, assignment(written.origin, json_string(mended(written.as_text()))));
      return "run";
    }
    const std::string name = mended(std::filesystem::path(request_.file).stem());
    written = {name, {"default of run.name", 0, 0, "run.name"}};
    return name;
  }

  // The line that a position is in; "" if showing it would not help.
  std::string line_at(const Position& at) const {
    const auto layer = std::ranges::find(layers_ | std::views::reverse, at.file, &Layer::name);
    const size_t line = static_cast<size_t>(at.line);
    if (layer == layers_.rend() || line < 1 || line > layer->lines.size() ||
        layer->lines[line - 1].size() > kLongestLine)
      return "";
    const std::string& text = layer->lines[line - 1];
    return text.substr(0, text.size() - (text.ends_with('\r') ? 1 : 0));
  }

  void refuse(const char* code, const std::string& message, const Position& at, const std::string& fix = "") {
    report_.add(mistake(code, message, at, fix));
  }
  void warn(const char* code, const std::string& message, const Position& at, const std::string& fix = "",
            const std::string& effect = "") {
    report_.add(as_warning(mistake(code, message, at, fix), effect));
  }

  const ManifestRequest& request_;
  const Vocabulary words_;
  Report& report_;
  std::vector<Layer> layers_;
  const bool all_read_;
  std::map<std::string, std::string> refused_;  // as Manifest's
  std::set<std::string> unread_;
  std::vector<FamilyKey> family_keys_;
  size_t layer_ = 0;                           // the one that is being added
  std::map<std::string, MergedTable> tables_;  // by name: "run", "optimizer", "FAMILY.NAME", "parameters.RULE"
};

}  // namespace

Manifest read_manifest(const ManifestRequest& request, Report& report) {
  Report own;
  Merger merger(request, own);
  Manifest manifest = merger.manifest();
  for (Diagnostic& d : merger.in_order(own.all())) report.add(std::move(d));
  return manifest;
}

std::vector<std::string> plugin_paths_of(const ManifestRequest& request) {
  ManifestRequest without_plugins = request;
  without_plugins.catalogue = nullptr;
  Report quiet;
  return Merger(without_plugins, quiet).plugin_paths();
}

}  // namespace mortise
