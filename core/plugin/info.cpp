// plugin.toml as a PluginInfo. Its schema part ([config.*], [preset.*], [family_defaults]) is read where manifests are.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "core/base/text.hpp"
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

// "0.1" and, with two dots, "0.1.0".
bool is_version(std::string_view text, int dots) {
  const std::vector<std::string> parts = split(text, '.');
  return static_cast<int>(parts.size()) == dots + 1 && std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part.size() <= 6 && part.find_first_not_of("0123456789") == part.npos;
  });
}

// One table whose keys are all known: each is asked for, and what nobody asked for is a mistake.
class Keys {
 public:
  Keys(const TomlTable& table, Position origin, std::string label, Report& report)
      : table_(table), origin_(std::move(origin)), label_(std::move(label)), report_(report) {}
  Keys(const Keys&) = delete;
  ~Keys() {
    for (const TomlEntry& entry : table_.entries)
      if (std::count(asked_.begin(), asked_.end(), entry.key) == 0) refuse_unknown(entry);
  }

  // `example` is the line to add where the key must not be missing.
  void text(const char* key, std::string& to, const char* example = nullptr) {
    const TomlNode* node = ask(key);
    if (!node && example) error("missing_key", label_ + " has no `" + key + "`", origin_, example);
    if (node && node->text()) to = *node->text();
    else if (node) refuse_type(key, *node, "text");
  }

  // A text for which `fits` holds; `form` says which they are.
  void text(const char* key, std::string& to, const char* example, const char* form, const std::function<bool(const std::string&)>& fits) {
    text(key, to, example);
    const TomlNode* node = table_.find(key);
    if (node && node->text() && !fits(to)) error("out_of_range", "`" + std::string(key) + "` of " + label_ + " is " + form + ", this is `" + to + "`", at(*node));
  }

  void flag(const char* key, bool& to) {
    const TomlNode* node = ask(key);
    if (node && std::holds_alternative<bool>(node->data)) to = std::get<bool>(node->data);
    else if (node) refuse_type(key, *node, "true or false");
  }

  void texts(const char* key, std::vector<std::string>& to) {
    each(key, "a list of texts", [&](const TomlNode& item) {
      if (item.text()) to.push_back(*item.text());
      return item.text() != nullptr;
    });
  }

  // A list of inline tables; `read` gets the keys of each.
  void tables(const char* key, const std::function<void(Keys&, const Position&)>& read) {
    each(key, "a list of tables", [&](const TomlNode& item) {
      if (!item.is_table()) return false;
      Keys keys(*item.table(), at(item), "an element of `" + std::string(key) + "`", report_);
      read(keys, at(item));
      return true;
    });
  }

 private:
  const TomlNode* ask(const char* key) {
    asked_.push_back(key);
    return table_.find(key);
  }

  void each(const char* key, const char* wanted, const std::function<bool(const TomlNode&)>& take) {
    const TomlNode* node = ask(key);
    if (!node) return;
    if (!node->list()) return refuse_type(key, *node, wanted);
    for (const TomlNode& item : *node->list())
      if (!take(item)) refuse_type(key, item, wanted);
  }

  Position at(const TomlNode& node) const { return position_of(origin_.file, node); }

  void refuse_type(const char* key, const TomlNode& node, const char* wanted) {
    error("wrong_type", "`" + std::string(key) + "` of " + label_ + " is " + wanted + ", this is " + node.kind(), at(node));
  }

  void refuse_unknown(const TomlEntry& entry) {
    const std::string near = nearest(entry.key, asked_);
    error("unknown_key", label_ + " has no key `" + entry.key + "`", position_of(origin_.file, entry),
          near.empty() ? "it has: " + join(asked_, ", ") : "it is called `" + near + "` here");
  }

  void error(const char* code, std::string message, const Position& where, std::string fix = "") {
    add_mistake(report_, code, std::move(message), where, std::move(fix));
  }

  const TomlTable& table_;
  Position origin_;
  std::string label_;
  Report& report_;
  std::vector<std::string> asked_;
};

class Reader {
 public:
  Reader(const TomlTable& root, std::string shown, PluginInfo& info, Report& report) : root_(root), shown_(std::move(shown)), info_(info), report_(report) {}

  void read(const std::string& id) {
    read_plugin(id);
    read_points();
    read_capabilities();
    if (const auto keys = open("links")) keys->texts("allow", info_.links);
    read_operators();
    read_facts();
    read_plugin_schema(root_, shown_, info_.schema, report_);
  }

 private:
  // The keys of a table at the top, if it is there and is one.
  std::unique_ptr<Keys> open(const char* name) {
    const TomlNode* node = root_.find(name);
    if (node && !node->is_table()) refuse_no_table(name, *node);
    if (!node || !node->is_table()) return nullptr;
    return std::make_unique<Keys>(*node->table(), position_of(shown_, *node), "[" + std::string(name) + "]", report_);
  }

  void read_plugin(const std::string& expected) {
    std::string& id = info_.schema.id;
    if (const auto keys = open("plugin")) {
      keys->text("id", id, "id = \"family.name\"", "`family.name` in small letters, digits and _", is_plugin_id);
      keys->text("version", info_.version, "version = \"0.1.0\"", "three numbers", [](const std::string& text) { return is_version(text, 2); });
      keys->text("summary", info_.schema.summary, "summary = \"…\"");
      keys->text("status", info_.status, "status = \"alpha\"", "alpha or stable", [](const std::string& text) { return text == "alpha" || text == "stable"; });
      keys->text("source", info_.source);
      keys->text("tier", info_.tier, nullptr, "portable or native", [](const std::string& text) { return text == "portable" || text == "native"; });
      keys->text("abi", info_.abi, "abi = \"0.1\"", "two numbers", [](const std::string& text) { return is_version(text, 1); });
    } else if (!root_.find("plugin")) {
      add("missing_key", "there is no [plugin]", Position{shown_, 1, 1, ""}, "[plugin]");
    }
    if (!expected.empty() && is_plugin_id(id) && id != expected)
      add("id_differs", "[plugin] says `" + id + "`, its file is called `" + expected + "`", position_of(shown_, *root_.find("plugin", "id")),
          "one name for id, folder and library: id = \"" + expected + "\"");
    const size_t dot = id.find('.');
    info_.schema.family = id.substr(0, dot);
    if (dot != id.npos) info_.schema.name = id.substr(dot + 1);
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
    points->texts("chooses", info_.chooses);
    points->texts("covers", info_.covers);
  }

  void read_capabilities() {
    const auto keys = open("capabilities");
    if (!keys) return;
    keys->texts("provides", info_.capabilities);
    keys->texts("requires", info_.requires_);
    keys->texts("exclusive", info_.schema.exclusive);
    keys->tables("conflicts", [&](Keys& item, const Position& origin) {
      ConflictInfo& conflict = info_.conflicts.emplace_back();
      conflict.origin = origin;
      item.text("with", conflict.with, "with = \"family.name\"");
      item.text("why", conflict.why, "why = \"…\"");
      item.text("fix", conflict.fix, "fix = \"…\"");
    });
    keys->texts("syncs", info_.syncs);
    keys->texts("after", info_.after);
    keys->texts("before", info_.before);
  }

  void read_operators() {
    const TomlNode* all = root_.find("operator");
    if (all && !all->is_table()) return refuse_no_table("operator", *all);
    if (!all) return;
    for (const TomlEntry& entry : all->table()->entries) {
      if (!entry.value.is_table()) {
        refuse_no_table("operator." + entry.key, entry.value);
        continue;
      }
      Keys keys(*entry.value.table(), position_of(shown_, entry.value), "[operator." + entry.key + "]", report_);
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
      if (std::count(kOurs.begin(), kOurs.end(), table.key) > 0) continue;
      const std::string near = nearest(table.key, kOurs);
      if (!near.empty()) {
        add("unknown_table", "there is no table [" + table.key + "]", position_of(shown_, table.value), "it is called [" + near + "] here");
      } else if (!table.value.is_table()) {
        add("unknown_key", "`" + table.key + "` stands before the first table", position_of(shown_, table), "[plugin]\n" + table.key + " = …");
      } else {
        read_facts_of(table.key, *table.value.table());
      }
    }
  }

  void read_facts_of(const std::string& slot, const TomlTable& table) {
    for (const TomlEntry& entry : table.entries) {
      const Position origin = position_of(shown_, entry.value, slot + "." + entry.key);
      if (auto value = plain_value(entry.value, origin)) info_.facts[slot][entry.key] = std::move(*value);
      else add("wrong_type", "`" + entry.key + "` of [" + slot + "] is a plain value or a list of them, this is " + entry.value.kind(), origin);
    }
  }

  void refuse_no_table(const std::string& name, const TomlNode& node) {
    add("wrong_type", "`" + name + "` is a table, this is " + node.kind(), position_of(shown_, node), "[" + name + "]");
  }

  void add(const char* code, std::string message, Position where, std::string fix = "") {
    add_mistake(report_, code, std::move(message), std::move(where), std::move(fix));
  }

  const TomlTable& root_;
  const std::string shown_;
  PluginInfo& info_;
  Report& report_;
};

}  // namespace

bool is_plugin_id(std::string_view text) {
  const std::vector<std::string> parts = split(text, '.');
  return parts.size() == 2 && std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part[0] >= 'a' && part[0] <= 'z' && part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == part.npos;
  });
}

std::optional<PluginInfo> read_plugin_info(const std::string& toml_path, const std::string& id, Report& report) {
  // Positions say which plugin, as everywhere; the path stands once, below.
  const std::string shown = id.empty() ? toml_path : "plugin.toml of " + id;
  Report mistakes;
  PluginInfo info;
  info.toml_path = toml_path;
  if (const auto root = read_toml(toml_path, shown, mistakes, &info.toml_text)) Reader(*root, shown, info, mistakes).read(id);
  std::vector<Diagnostic> in_order = mistakes.all();
  const auto place = [](const Diagnostic& d) { return d.positions.empty() ? std::pair(0, 0) : std::pair(d.positions[0].line, d.positions[0].column); };
  std::stable_sort(in_order.begin(), in_order.end(), [&](const Diagnostic& a, const Diagnostic& b) { return place(a) < place(b); });
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
