// plugin.toml as a PluginInfo. Its schema part ([config.*], [preset.*], [family_defaults]) is read where manifests are.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <variant>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/manifest/toml.hpp"
#include "core/plugin/plugin_info.hpp"

namespace mortise {
namespace {

// A key of a table: where its value goes, whose type follows from that unless it is said, and the line to add where the
// key must not be missing.
struct Key {
  using Row =
      std::function<std::vector<Key>(const Position&)>;  // of a list of inline tables: called for each, gives its keys
  const char* name;
  std::variant<std::string*, std::vector<std::string>*, bool*, Row> to;
  const char* example = nullptr;
  const char* type = nullptr;
  std::vector<std::string> choices = {};
};

class Reader {
 public:
  Reader(const TomlTable& root, const std::string& shown, PluginInfo& info, Report& report)
      : root_(root), shown_(shown), info_(info), report_(report) {}

  void read(const std::string& id) {
    read_plugin(id);
    read_points();
    read_capabilities();
    check_capabilities();
    fill("links", {{"allow", &info_.links}});
    read_operators();
    read_errors();
    read_plugin_schema(root_, info_.schema, report_);
    read_facts();
    read_huggingface();
  }

 private:
  void add_mistake(const char* code, std::string message, Position at, std::string fix = "") {
    report_.add(mistake(code, std::move(message), std::move(at), std::move(fix)));
  }

  // A table at the top, if it is there.
  void fill(const std::string& name, const std::vector<Key>& keys) {
    const TomlNode* node = root_.find(name);
    if (node && must_be_table(name, *node)) fill(*node->table(), position(node->at), "[" + name + "]", name, keys);
  }

  // `title` is `name` with brackets, or without where the table stands inside a line, "points.wraps". A key that is
  // none of `keys` is a mistake.
  void fill(const TomlTable& table, const Position& at, const std::string& title, const std::string& name,
            const std::vector<Key>& keys) {
    std::vector<std::string> names;
    for (const Key& key : keys) {
      names.push_back(key.name);
      if (const TomlNode* node = table.find(key.name)) read_key(key, *node, name + "." + key.name);
      else if (key.example) add_mistake("missing_key", title + " has no `" + key.name + "`", at, key.example);
    }
    for (const TomlEntry& entry : table.entries) {
      if (std::ranges::find(names, entry.key) != names.end()) continue;
      unknown_key(title, entry, names);
    }
  }

  void unknown_key(const std::string& title, const TomlEntry& entry, const std::vector<std::string>& names) {
    const std::string near = nearest(entry.key, names);
    add_mistake("unknown_key", title + " has no key `" + entry.key + "`", position(entry.at),
                near.empty() ? "it has: " + join(names, ", ") : "it is called `" + near + "` here");
  }

  void read_key(const Key& key, const TomlNode& node, const std::string& whole) {
    if (const auto* row = std::get_if<Key::Row>(&key.to)) return read_rows(*row, key.name, node, whole);
    const char* const types[] = {"string", "list<string>", "bool"};
    KeySchema schema;
    schema.type = key.type ? key.type : types[key.to.index()];
    schema.choices = key.choices;
    const std::optional<Value> value = check_value(schema, node, whole, report_);
    if (!value) return;
    if (auto* const* text = std::get_if<std::string*>(&key.to)) **text = value->as_text();
    if (auto* const* texts = std::get_if<std::vector<std::string>*>(&key.to)) **texts = value->as_texts();
    if (auto* const* flag = std::get_if<bool*>(&key.to)) **flag = value->as_bool();
  }

  void read_rows(const Key::Row& row, const std::string& key, const TomlNode& node, const std::string& whole) {
    if (!node.list() || !std::ranges::all_of(*node.list(), &TomlNode::is_table))
      return add_mistake("wrong_type", whole + " is a list of tables", position(node.at), key + " = [{ … }]");
    for (const TomlNode& item : *node.list()) {
      const Position at = position(item.at, whole);
      fill(*item.table(), at, whole, whole, row(at));
    }
  }

  // Numbers with so many dots between them: "0.1.0".
  void check_version(const std::string& key, const std::string& version, size_t numbers, const std::string& example) {
    const TomlNode* node = root_.find("plugin", key);
    if (!node || !node->text()) return;
    const std::vector<std::string> parts = split(version, '.');
    const auto is_number = [](const std::string& part) {
      return !part.empty() && part.size() <= 6 && part.find_first_not_of("0123456789") == part.npos;
    };
    if (parts.size() != numbers || !std::ranges::all_of(parts, is_number))
      add_mistake("out_of_range",
                  "plugin." + key + " is " + std::to_string(numbers) + " numbers, this is `" + version + "`",
                  position(node->at), example);
  }

  bool must_be_table(const std::string& name, const TomlNode& node) {
    if (!node.is_table())
      add_mistake("wrong_type", "`" + name + "` is a table, this is " + node.kind(), position(node.at),
                  "[" + name + "]");
    return node.is_table();
  }

  void read_plugin(const std::string& expected) {
    PluginSchema& schema = info_.schema;
    const char *const version = "version = \"0.1.0\"", *const abi = "abi = \"0.1\"";
    fill("plugin", {{"id", &schema.id, "id = \"family.name\"", "id"},
                    {"version", &info_.version, version},
                    {"summary", &schema.summary, "summary = \"…\""},
                    {"status", &info_.status, "status = \"alpha\"", "choice", {"alpha", "stable"}},
                    {"source", &info_.source},
                    {"tier", &info_.tier, nullptr, "choice", {"portable", "native"}},
                    {"change", &info_.change, nullptr, "choice", {"free", "numeric", "fixed"}},
                    {"abi", &info_.abi, abi}});
    check_version("version", info_.version, 3, version);
    check_version("abi", info_.abi, 2, abi);
    if (!root_.find("plugin"))
      add_mistake("missing_key", "there is no [plugin]", Position{shown_, 1, 1, ""}, "[plugin]");
    if (!expected.empty() && !schema.id.empty() && schema.id != expected)
      add_mistake("id_differs", "[plugin] says `" + schema.id + "`, its file is called `" + expected + "`",
                  position(root_.find("plugin", "id")->at),
                  "one name for id, folder and library: id = \"" + expected + "\"");
    const size_t dot = schema.id.find('.');
    schema.family = schema.id.substr(0, dot);
    if (dot != std::string::npos) schema.name = schema.id.substr(dot + 1);
  }

  void read_points() {
    const Key::Row wraps = [&](const Position& at) -> std::vector<Key> {
      WrapInfo& wrap = info_.wraps.emplace_back(WrapInfo{.origin = at});
      return {{"point", &wrap.point, "point = \"block\""},
              {"band", &wrap.band, "band = \"adapt\""},
              {"modes", &wrap.modes, nullptr, "list<choice>", {"train", "eval", "sample"}},
              {"optional", &wrap.optional},
              {"capture", &wrap.capture}};
    };
    const Key::Row listens = [&](const Position& at) -> std::vector<Key> {
      ListenInfo& listen = info_.listens.emplace_back(ListenInfo{.origin = at});
      return {{"point", &listen.point, "point = \"record\""},
              {"reads", &listen.reads},
              {"writes", &listen.writes},
              {"capture", &listen.capture},
              {"everywhere", &listen.everywhere}};
    };
    fill("points", {{"provides", &info_.schema.provides},
                    {"wraps", wraps},
                    {"listens", listens},
                    {"chooses", &info_.chooses, nullptr, "list<id>"}});
  }

  void read_capabilities() {
    const Key::Row conflicts = [&](const Position& at) -> std::vector<Key> {
      ConflictInfo& conflict = info_.conflicts.emplace_back(ConflictInfo{.origin = at});
      return {{"with", &conflict.with, "with = \"family.name\""},
              {"why", &conflict.why, "why = \"…\""},
              {"fix", &conflict.fix, "fix = \"…\""}};
    };
    fill("capabilities", {{"provides", &info_.capabilities},
                          {"requires", &info_.requires_},
                          {"exclusive", &info_.schema.exclusive},
                          {"conflicts", conflicts},
                          {"syncs", &info_.syncs},
                          {"devices", &info_.devices},
                          {"equals", &info_.equals},
                          {"after", &info_.after},
                          {"before", &info_.before}});
  }

  // What nobody could meet: two of one point, an order or a conflict with oneself.
  void check_capabilities() {
    const std::string& id = info_.schema.id;
    each_choice({"cpu", "cuda"}, root_.find("capabilities", "devices"), "capabilities.devices");
    check_equals();
    std::vector<std::string> once;
    each_text("points", "provides", [&](const std::string& point, const Position& at) {
      if (std::ranges::count(once, point))
        add_mistake("schema_broken", "points.provides names `" + point + "` twice", at);
      once.push_back(point);
    });
    for (const char* order : {"after", "before"})
      each_text("capabilities", order, [&](const std::string& other, const Position& at) {
        if (other == id)
          add_mistake("schema_broken", std::string("capabilities.") + order + " names `" + id + "` itself", at);
      });
    for (const ConflictInfo& conflict : info_.conflicts)
      if (conflict.with == id)
        add_mistake("schema_broken", "capabilities.conflicts names `" + id + "` itself", conflict.origin);
  }

  void check_equals() {
    const TomlNode* node = root_.find("capabilities", "equals");
    if (!node || !node->text()) return;
    const std::string& text = info_.equals;
    char* end = nullptr;
    const double bound = std::strtod(text.c_str(), &end);
    if (text == "exact" || text == "other" || (!*end && bound > 0 && bound < 1)) return;
    add_mistake("not_a_choice",
                "capabilities.equals is exact, other or how far losses are apart, this is `" + text + "`",
                position(node->at, "capabilities.equals"), "equals = \"exact\", or \"1e-4\"");
  }

  template <class Body>
  void each_text(const std::string& table, const std::string& key, Body body) {
    const TomlNode* list = root_.find(table, key);
    for (const TomlNode& item : list && list->list() ? *list->list() : TomlList())
      if (item.text()) body(*item.text(), position(item.at, table + "." + key));
  }

  // A list of words, each of which is one of `choices`.
  void each_choice(const std::vector<std::string>& choices, const TomlNode* list, const std::string& key) {
    for (const TomlNode& item : list && list->list() ? *list->list() : TomlList())
      if (item.text() && !std::ranges::count(choices, *item.text()))
        add_mistake("not_a_choice", key + " is " + either(choices) + ", this is `" + *item.text() + "`",
                    position(item.at, key));
  }

  void read_operators() {
    const TomlNode* all = root_.find("operator");
    if (!all || !must_be_table("operator", *all)) return;
    for (const TomlEntry& entry : all->table()->entries) {
      const std::string name = "operator." + entry.key;
      if (!must_be_table(name, entry.value)) continue;
      OperatorRow& row = info_.operators.emplace_back(OperatorRow{.name = entry.key});
      fill(*entry.value.table(), position(entry.value.at), "[" + name + "]", name,
           {{"arguments", &row.arguments, "arguments = \"x [N, width]\""},
            {"results", &row.results, "results = \"y [N, width]\""},
            {"doc", &row.doc, "doc = \"…\""},
            {"dtypes", &row.dtypes}});
      each_choice({std::begin(kResultDtypes), std::end(kResultDtypes)}, entry.value.table()->find("dtypes"),
                  name + ".dtypes");
    }
  }

  void read_errors() {
    const TomlNode* all = root_.find("errors");
    if (!all || !must_be_table("errors", *all)) return;
    for (const TomlEntry& entry : all->table()->entries) {
      const std::string name = "errors." + entry.key;
      if (!must_be_table(name, entry.value)) continue;
      OwnError& error = info_.schema.errors[entry.key];
      fill(*entry.value.table(), position(entry.value.at), "[" + name + "]", name,
           {{"meaning", &error.meaning, "meaning = \"A row has no label.\""}, {"of_data", &error.of_data}});
    }
  }

  // Every other table says facts: of a slot that the plugin provides, or for the core.
  void read_facts() {
    static const std::vector<std::string> kFacts = {"advice.text",
                                                    "comm.reduce_scatter",
                                                    "data.threads",
                                                    "device.kind",
                                                    "device.wait",
                                                    "frame.compute_dtype",
                                                    "frame.products",
                                                    "labels.are",
                                                    "load.adds",
                                                    "load.removes",
                                                    "memory.workspaces",
                                                    "metric.in_training",
                                                    "metric.larger_is_better",
                                                    "metric.smaller_is_better",
                                                    "model.context",
                                                    "model.modes",
                                                    "model.vocabulary",
                                                    "names.operators",
                                                    "names.parameters",
                                                    "needs.file",
                                                    "needs.hidden_by",
                                                    "needs.named_by",
                                                    "needs.numbered",
                                                    "needs.why",
                                                    "optimizer.cut",
                                                    "peft.peft_type",
                                                    "peft.prefix",
                                                    "ranks.at_most",
                                                    "ranks.averages",
                                                    "ranks.axis",
                                                    "ranks.gives",
                                                    "ranks.gives_back",
                                                    "ranks.gradient",
                                                    "ranks.norms",
                                                    "ranks.sees",
                                                    "ranks.size",
                                                    "ranks.speaks",
                                                    "ranks.sums",
                                                    "repeat.devices",
                                                    "repeat.differs",
                                                    "repeat.unasked",
                                                    "sample.prompts",
                                                    "tokenizer.file",
                                                    "tokenizer.path"};
    const std::vector<std::string> ours = {"plugin", "points",          "capabilities", "links",  "operator",
                                           "errors", "family_defaults", "config",       "preset", "huggingface"};
    std::vector<std::string> known = info_.schema.provides;
    for (const std::string& fact : kFacts) known.push_back(fact.substr(0, fact.find('.')));
    for (const TomlEntry& table : root_.entries) {
      if (std::ranges::find(ours, table.key) != ours.end()) continue;
      if (std::ranges::find(known, table.key) == known.end()) {
        known.insert(known.end(), ours.begin(), ours.end());
        const std::string near = nearest(table.key, known);
        add_mistake("unknown_table", "there is no table [" + table.key + "]", position(table.value.at),
                    near.empty() ? "what it says of a point that it provides stands in [POINT]"
                                 : "it is called [" + near + "] here");
      } else if (must_be_table(table.key, table.value)) {
        if (!check_provided(table)) continue;
        std::vector<std::string> keys;
        for (const std::string& fact : kFacts)
          if (fact.starts_with(table.key + ".")) keys.push_back(fact.substr(table.key.size() + 1));
        const bool provided = std::ranges::count(info_.schema.provides, table.key);
        if (provided) keys.push_back("devices");
        if (provided && !is_object(table.key))
          keys.insert(keys.end(), {"attributes", "covers", "best_in"});  // of its layers
        for (const TomlEntry& entry : table.value.table()->entries) read_fact(table.key, entry, keys);
        if (table.key == "ranks") check_axis(*table.value.table());
      }
    }
  }

  // Who has an axis says all of it that a proof needs, core/plan/proof.hpp.
  void check_axis(const TomlTable& ranks) {
    const TomlNode* axis = ranks.find("axis");
    const std::string rows = ranks.find("sees") ? "\"same\"" : "\"cut\"";
    for (const auto& [fact, usual] : std::map<std::string, std::string>{{"size", "\"ranks\", a key of [config]"},
                                                                        {"gives", rows},
                                                                        {"gives_back", rows},
                                                                        {"gradient", "\"whole\""}})
      if (axis && !ranks.find(fact))
        add_mistake("schema_broken", "[ranks] has an axis, and no `" + fact + "`", position(axis->at, "ranks.axis"),
                    fact + " = " + usual);
    const TomlNode* size = ranks.find("size");
    const auto& keys = info_.schema.config.keys;
    const auto key = size && size->text() ? keys.find(*size->text()) : keys.end();
    if (axis && key != keys.end() && (key->second.type != "int" || key->second.min.value_or(0) < 1))
      add_mistake("schema_broken", "[config." + key->first + "] is the size of an axis, and may be below 1",
                  position(size->at, "ranks.size"), "type = \"int\" and min = 1");
  }

  // The points of kind Object, core/plan/points.def, that can be a table.
  static bool is_object(const std::string& point) {
    const auto all = {"comm", "data", "device", "model", "optimizer", "replicas", "schedule", "tokenizer"};
    return std::ranges::find(all, point) != all.end();
  }

  // What is said of a provider, where the plugin is none there.
  bool check_provided(const TomlEntry& table) {
    const std::vector<std::string>& provides = info_.schema.provides;
    if (std::ranges::count(provides, table.key)) return true;
    if (table.key == "repeat" || (!is_object(table.key) && !table.value.table()->find("devices"))) return true;
    bool meant = false;
    each_text("points", "provides", [&](const std::string& point, const Position& at) {
      if (nearest(point, {table.key}).empty()) return;
      meant = true;
      add_mistake("unknown_point", "there is no point `" + point + "`", at, "it is called `" + table.key + "`");
    });
    if (!meant)
      add_mistake("schema_broken", "[" + table.key + "] speaks of a point that the plugin does not provide",
                  position(table.value.at), "[points] provides = [\"" + table.key + "\"]");
    return false;
  }

  // Facts of few words, lists of names, and facts that name a key of [config].
  void check_fact(const std::string& fact, const TomlNode& node) {
    const bool is_empty = node.text() ? node.text()->empty() : node.list() && node.list()->empty();
    if (is_empty && fact.starts_with("repeat."))
      add_mistake("schema_broken", fact + " is empty", position(node.at, fact), "leave it out");
    const auto quoted = [](const TomlNode& item) { return item.text() ? "`" + *item.text() + "`" : item.kind(); };
    const TomlList items = node.list() ? *node.list() : TomlList{node};
    struct Words {
      bool are_here;
      std::vector<std::string> known;
    };
    for (const Words& words :
         {Words{fact == "device.kind" || fact.ends_with(".devices"), {"cpu", "cuda"}},
          Words{fact == "comm.reduce_scatter", {"whole"}}, Words{fact == "labels.are", {"in_place"}},
          Words{fact == "ranks.speaks", {"first"}}, Words{fact == "ranks.at_most", {"one"}},
          Words{fact == "ranks.sees", {"same"}}, Words{fact.starts_with("ranks.gives"), {"same", "cut", "partial"}},
          Words{fact == "ranks.gradient", {"whole", "partial"}},
          Words{fact == "ranks.sums", {"replicas", "all", "none"}},
          Words{fact == "ranks.averages", {"replicas", "all"}}, Words{fact == "ranks.norms", {"parts", "all", "none"}},
          Words{fact == "model.modes" || fact.ends_with(".best_in"), {"train", "eval", "sample"}}})
      for (const TomlNode& item : words.are_here ? items : TomlList())
        if (!item.text() || !std::ranges::count(words.known, *item.text()))
          add_mistake("not_a_choice", fact + " is " + either(words.known) + ", this is " + quoted(item),
                      position(item.at, fact));
    struct Names {
      bool are_here;
      const char *of, *example;
    };
    for (const Names& names :
         {Names{fact.ends_with(".attributes"), "attributes", "[\"width\", \"init\"]"},
          Names{fact.ends_with(".covers"), "operators", "[\"linear\"]"},
          Names{(fact == "model.modes" || fact.ends_with(".best_in")) && !node.list(), "modes",
                "[\"train\", \"eval\"]"},
          Names{fact.ends_with("er_is_better"), "numbers of evaluations", "[\"eval.accuracy\"]"},
          Names{fact == "load.adds" || fact == "load.removes", "fields of a batch", "[\"segments\"]"}})
      for (const TomlNode& item : names.are_here ? items : TomlList())
        if (!node.list() || !item.text())
          add_mistake("wrong_type", fact + " is a list of names of " + names.of + ", this is " + quoted(item),
                      position(item.at, fact), fact.substr(fact.find('.') + 1) + " = " + names.example);
    const bool is_key = fact.starts_with("names.") || fact == "model.context" || fact == "device.wait" ||
                        fact == "metric.in_training" || fact == "tokenizer.path" || fact == "ranks.size";
    if (is_key && !info_.schema.config.keys.contains(*node.text()))
      add_mistake("schema_broken", fact + " names " + quoted(node) + ", which is no key of [config]",
                  position(node.at, fact));
  }

  void read_huggingface() {
    const TomlNode* table = root_.find("huggingface");
    if (!table || !must_be_table("huggingface", *table)) return;
    std::vector<std::string> keys;
    for (const auto& [name, key] : info_.schema.config.keys) keys.push_back(name);
    info_.huggingface = huggingface::read_mapping(
        *table->table(), keys, [&](const TomlPlace& at, const std::string& message, const std::string& fix) {
          add_mistake("schema_broken", message, position(at, "huggingface"), fix);
        });
  }

  void read_fact(const std::string& slot, const TomlEntry& entry, const std::vector<std::string>& keys) {
    const std::string key = slot + "." + entry.key;
    const Position origin = position(entry.value.at, key);
    const std::string* text = entry.value.text();
    // [data] SPLIT = "KEY": the key of [config] with the files of a split; [peft] THEIRS = "KEY".
    const bool is_key = (slot == "data" || slot == "peft") && text && info_.schema.config.keys.contains(*text);
    if (std::ranges::find(keys, entry.key) == keys.end() && !is_key) return unknown_key("[" + slot + "]", entry, keys);
    const bool may_be_list = entry.key == "devices" || entry.key == "attributes" || entry.key == "covers" ||
                             entry.key == "cut" || entry.key == "best_in" || key == "model.modes" ||
                             key.ends_with("er_is_better") || slot == "load";
    auto value = plain_value(entry.value, key);
    if (value && (text || may_be_list)) {
      check_fact(key, entry.value);
      info_.facts[slot][entry.key] = std::move(*value);
    } else {
      add_mistake(
          "wrong_type",
          key + " is a " + (may_be_list ? "value or a list of values" : "string") + ", this is " + entry.value.kind(),
          origin);
    }
  }

  const TomlTable& root_;
  const std::string& shown_;
  PluginInfo& info_;
  Report& report_;
};

}  // namespace

const Value* fact_of(const PluginInfo& info, const std::string& table, const std::string& key) {
  const auto found = info.facts.find(table);
  if (found == info.facts.end()) return nullptr;
  const auto value = found->second.find(key);
  return value == found->second.end() ? nullptr : &value->second;
}

std::vector<std::string> texts_of_fact(const PluginInfo& info, const std::string& table, const std::string& key) {
  const Value* value = fact_of(info, table, key);
  return value ? value->as_texts() : std::vector<std::string>();
}

std::optional<PluginInfo> read_plugin_info(const std::string& toml_path, const std::string& id, Report& report) {
  // Positions say which plugin, as everywhere; the path stands once, below.
  const std::string shown = id.empty() ? toml_path : "plugin.toml of " + id;
  Report mistakes;
  PluginInfo info;
  info.toml_path = toml_path;
  if (const auto root = read_toml(toml_path, shown, mistakes, &info.toml_text))
    Reader(*root, shown, info, mistakes).read(id);
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
