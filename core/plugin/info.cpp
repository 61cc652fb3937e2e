// plugin.toml as a PluginInfo. Its schema part ([config.*], [preset.*], [family_defaults]) is read where manifests are.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/manifest/toml.hpp"
#include "core/plugin/plugin_info.hpp"

namespace mortise {
namespace {

void add_mistake(Report& report, const char* code, std::string message, Position where, std::string fix = "") {
  Diagnostic d;
  d.code = code;
  d.message = std::move(message);
  d.positions = {std::move(where)};
  if (!fix.empty()) d.fixes = {std::move(fix)};
  report.add(std::move(d));
}

// One table whose keys are all known: each is asked for, and what nobody asked for is a mistake.
class Keys {
 public:
  // `name` with its brackets, "[plugin]", or without where it stands inside a line, "points.wraps".
  Keys(const TomlTable& table, Position origin, std::string name, Report& report)
      : table_(table), origin_(std::move(origin)), name_(std::move(name)), report_(report) {}
  Keys(const Keys&) = delete;
  ~Keys() {
    for (const TomlEntry& entry : table_.entries)
      if (std::ranges::find(asked_, entry.key) == asked_.end()) refuse_unknown(entry);
  }

  // `example` is the line to add where the key must not be missing.
  void text(const char* key, std::string& to, const char* example = nullptr, const char* type = "string", std::vector<std::string> choices = {}) {
    if (auto value = get(key, type, std::move(choices))) to = value->as_text();
    if (example && !table_.find(key)) add_mistake(report_, "missing_key", name_ + " has no `" + key + "`", origin_, example);
  }

  // Numbers with so many dots between them: "0.1.0".
  void version(const char* key, std::string& to, const char* example, int dots) {
    text(key, to, example);
    const TomlNode* node = table_.find(key);
    if (!node || !node->text()) return;
    const std::vector<std::string> parts = split(to, '.');
    const bool numbers = std::ranges::all_of(
        parts, [](const std::string& part) { return !part.empty() && part.size() <= 6 && part.find_first_not_of("0123456789") == part.npos; });
    if (numbers && parts.size() == static_cast<size_t>(dots) + 1) return;
    add_mistake(report_, "out_of_range", bare_name() + "." + key + " is " + std::to_string(dots + 1) + " numbers, this is `" + to + "`", node->at,
                example);
  }

  void flag(const char* key, bool& to) {
    if (auto value = get(key, "bool")) to = value->as_bool();
  }

  void texts(const char* key, std::vector<std::string>& to, const char* type = "list<string>") {
    const auto value = get(key, type);
    if (!value) return;
    for (const Value& item : value->as_list()) to.push_back(item.as_text());
  }

  // A list of inline tables; `read` gets the keys of each.
  void tables(const char* key, const std::function<void(Keys&, const Position&)>& read) {
    asked_.push_back(key);
    const TomlNode* node = table_.find(key);
    if (!node) return;
    const std::string name = bare_name() + "." + key;
    if (!node->list() || !std::ranges::all_of(*node->list(), &TomlNode::is_table))
      return add_mistake(report_, "wrong_type", name + " is a list of tables", node->at, std::string(key) + " = [{ … }]");
    for (const TomlNode& item : *node->list()) {
      const Position at = keyed(item.at, name);
      Keys keys(*item.table(), at, name, report_);
      read(keys, at);
    }
  }

 private:
  std::optional<Value> get(const char* key, const char* type, std::vector<std::string> choices = {}) {
    asked_.push_back(key);
    const TomlNode* node = table_.find(key);
    if (!node) return std::nullopt;
    KeySchema schema;
    schema.type = type;
    schema.choices = std::move(choices);
    return check_value(schema, *node, bare_name() + "." + key, report_);
  }

  void refuse_unknown(const TomlEntry& entry) {
    const std::string near = nearest(entry.key, asked_);
    add_mistake(report_, "unknown_key", name_ + " has no key `" + entry.key + "`", entry.at,
                near.empty() ? "it has: " + join(asked_, ", ") : "it is called `" + near + "` here");
  }

  std::string bare_name() const { return name_[0] == '[' ? name_.substr(1, name_.size() - 2) : name_; }

  const TomlTable& table_;
  const Position origin_;
  const std::string name_;
  Report& report_;
  std::vector<std::string> asked_;
};

class Reader {
 public:
  Reader(const TomlTable& root, const std::string& shown, PluginInfo& info, Report& report)
      : root_(root), shown_(shown), info_(info), report_(report) {}

  void read(const std::string& id) {
    read_plugin(id);
    read_points();
    read_capabilities();
    if (const auto keys = open("links")) keys->texts("allow", info_.links);
    read_operators();
    read_facts();
    read_plugin_schema(root_, info_.schema, report_);
  }

 private:
  // The keys of a table at the top; NULL if it is not there, or is none.
  std::unique_ptr<Keys> open(const char* name) {
    const TomlNode* node = root_.find(name);
    if (!node || !must_be_table(name, *node)) return nullptr;
    return std::make_unique<Keys>(*node->table(), node->at, "[" + std::string(name) + "]", report_);
  }

  bool must_be_table(const std::string& name, const TomlNode& node) {
    if (!node.is_table()) add_mistake(report_, "wrong_type", "`" + name + "` is a table, this is " + node.kind(), node.at, "[" + name + "]");
    return node.is_table();
  }

  void read_plugin(const std::string& expected) {
    PluginSchema& schema = info_.schema;
    if (const auto keys = open("plugin")) {
      keys->text("id", schema.id, "id = \"family.name\"", "id");
      keys->version("version", info_.version, "version = \"0.1.0\"", 2);
      keys->text("summary", schema.summary, "summary = \"…\"");
      keys->text("status", info_.status, "status = \"alpha\"", "choice", {"alpha", "stable"});
      keys->text("source", info_.source);
      keys->text("tier", info_.tier, nullptr, "choice", {"portable", "native"});
      keys->version("abi", info_.abi, "abi = \"0.1\"", 1);
    } else if (!root_.find("plugin")) {
      add_mistake(report_, "missing_key", "there is no [plugin]", Position{shown_, 1, 1, ""}, "[plugin]");
    }
    if (!expected.empty() && !schema.id.empty() && schema.id != expected)
      add_mistake(report_, "id_differs", "[plugin] says `" + schema.id + "`, its file is called `" + expected + "`", root_.find("plugin", "id")->at,
                  "one name for id, folder and library: id = \"" + expected + "\"");
    const size_t dot = schema.id.find('.');
    schema.family = schema.id.substr(0, dot);
    if (dot != std::string::npos) schema.name = schema.id.substr(dot + 1);
  }

  void read_points() {
    const auto points = open("points");
    if (!points) return;
    points->texts("provides", info_.schema.provides);
    points->tables("wraps", [&](Keys& keys, const Position& origin) {
      WrapInfo& wrap = info_.wraps.emplace_back();
      wrap.origin = origin;
      keys.text("point", wrap.point, "point = \"block\"");
      keys.text("band", wrap.band, "band = \"adapt\"");
      keys.flag("capture", wrap.capture);
    });
    points->tables("listens", [&](Keys& keys, const Position& origin) {
      ListenInfo& listen = info_.listens.emplace_back();
      listen.origin = origin;
      keys.text("point", listen.point, "point = \"record\"");
      keys.texts("reads", listen.reads);
      keys.texts("writes", listen.writes);
      keys.flag("capture", listen.capture);
    });
    points->texts("chooses", info_.chooses, "list<id>");
    points->texts("covers", info_.covers);
  }

  void read_capabilities() {
    const auto capabilities = open("capabilities");
    if (!capabilities) return;
    capabilities->texts("provides", info_.capabilities);
    capabilities->texts("requires", info_.requires_);
    capabilities->texts("exclusive", info_.schema.exclusive);
    capabilities->tables("conflicts", [&](Keys& keys, const Position& origin) {
      ConflictInfo& conflict = info_.conflicts.emplace_back();
      conflict.origin = origin;
      keys.text("with", conflict.with, "with = \"family.name\"");
      keys.text("why", conflict.why, "why = \"…\"");
      keys.text("fix", conflict.fix, "fix = \"…\"");
    });
    capabilities->texts("syncs", info_.syncs);
    capabilities->texts("after", info_.after);
    capabilities->texts("before", info_.before);
  }

  void read_operators() {
    const TomlNode* all = root_.find("operator");
    if (!all || !must_be_table("operator", *all)) return;
    for (const TomlEntry& entry : all->table()->entries) {
      if (!must_be_table("operator." + entry.key, entry.value)) continue;
      Keys keys(*entry.value.table(), entry.value.at, "[operator." + entry.key + "]", report_);
      OperatorRow& row = info_.operators.emplace_back();
      row.name = entry.key;
      keys.text("arguments", row.arguments, "arguments = \"x [N, width]\"");
      keys.text("results", row.results, "results = \"y [N, width]\"");
      keys.text("doc", row.doc, "doc = \"…\"");
    }
  }

  // Every other table says facts of a slot. A name close to one of ours is a mistake, not a slot.
  void read_facts() {
    static const std::vector<std::string> kOurs = {"plugin", "points", "capabilities", "links", "operator", "family_defaults", "config", "preset"};
    for (const TomlEntry& table : root_.entries) {
      if (std::ranges::find(kOurs, table.key) != kOurs.end()) continue;
      const std::string near = nearest(table.key, kOurs);
      if (!near.empty())
        add_mistake(report_, "unknown_table", "there is no table [" + table.key + "]", table.value.at, "it is called [" + near + "] here");
      else if (must_be_table(table.key, table.value))
        for (const TomlEntry& entry : table.value.table()->entries) read_fact(table.key, entry);
    }
  }

  void read_fact(const std::string& slot, const TomlEntry& entry) {
    const std::string key = slot + "." + entry.key;
    const Position origin = keyed(entry.value.at, key);
    if (auto value = plain_value(entry.value, key))
      info_.facts[slot][entry.key] = std::move(*value);
    else
      add_mistake(report_, "wrong_type", key + " is a value or a list of values, this is " + entry.value.kind(), origin);
  }

  const TomlTable& root_;
  const std::string& shown_;
  PluginInfo& info_;
  Report& report_;
};

}  // namespace

bool is_plugin_id(std::string_view text) {
  const size_t dot = text.find('.');
  return dot != text.npos && is_name(text.substr(0, dot)) && is_name(text.substr(dot + 1));
}

std::optional<PluginInfo> read_plugin_info(const std::string& toml_path, const std::string& id, Report& report) {
  // Positions say which plugin, as everywhere; the path stands once, below.
  const std::string shown = id.empty() ? toml_path : "plugin.toml of " + id;
  Report mistakes;
  PluginInfo info;
  info.toml_path = toml_path;
  if (const auto root = read_toml(toml_path, shown, mistakes, &info.toml_text)) Reader(*root, shown, info, mistakes).read(id);
  std::vector<Diagnostic> in_order = mistakes.all();
  const auto place = [](const Diagnostic& d) {
    return d.positions.empty() ? std::pair(0, 0) : std::pair(d.positions[0].line, d.positions[0].column);
  };
  std::ranges::stable_sort(in_order, {}, place);
  for (Diagnostic& d : in_order) {
    d.at = toml_path;
    d.plugin = id;
    d.exit = kExitPlugin;
    report.add(std::move(d));
  }
  if (mistakes.has_errors()) return std::nullopt;
  info.folder = std::filesystem::path(toml_path).parent_path();
  info.library = std::filesystem::path(info.folder) / (info.schema.id + ".so");
  return info;
}

}  // namespace mortise
