// mortise plugin list [FAMILY] · mortise plugin info ID
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"

namespace mortise::cli {
namespace {

std::string points_of(const PluginInfo& p) {
  std::vector<std::string> all = p.schema.provides;
  for (const auto& w : p.wraps) all.push_back("around " + w.point + " (" + w.band + ")");
  for (const auto& l : p.listens) all.push_back("on " + l.point);
  return join(all, ", ");
}

[[noreturn]] void refuse_family(const std::map<std::string, PluginInfo>& known, const std::string& family) {
  std::vector<std::string> families;
  for (const auto& [id, p] : known)
    if (std::ranges::find(families, p.schema.family) == families.end()) families.push_back(p.schema.family);
  const std::string near = nearest(family, families);
  throw Failure(mistake("unknown_family", "no plugin of the family `" + family + "` is installed", {},
                        near.empty() ? "families: " + join(families, " ") : "mortise plugin list " + near));
}

int list(const std::map<std::string, PluginInfo>& known, const std::string& family) {
  std::vector<const PluginInfo*> shown;
  for (const auto& [id, p] : known)
    if (family.empty() || p.schema.family == family) shown.push_back(&p);
  if (globals().json) {
    std::vector<Json> plugins;
    for (const PluginInfo* p : shown)
      plugins.push_back({{"id", p->schema.id},
                         {"version", p->version},
                         {"tier", p->tier},
                         {"status", p->status},
                         {"summary", p->schema.summary},
                         {"library", p->library}});
    std::cout << list_text("plugins", plugins);
    return kExitOk;
  }
  Rows rows;
  for (const PluginInfo* p : shown)
    rows.push_back({p->schema.id, p->version, p->tier, escape_control(p->schema.summary)});
  print_columns(std::cout, rows);
  if (shown.empty()) refuse_family(known, family);
  return kExitOk;
}

std::vector<std::string> row_of(const KeySchema& k) {
  return {"  " + k.name, k.type, k.default_value.is_set() ? k.default_value.text() : "-",
          k.doc + "  (" + k.change + ")"};
}

void print_info_json(const PluginInfo& p) {
  Json keys = Json::array();
  for (const auto& [name, k] : p.schema.config.keys)
    keys.push_back({{"key", name},
                    {"type", k.type},
                    {"default", k.default_value.is_set() ? Json(k.default_value.text()) : Json()},
                    {"change", k.change},
                    {"doc", k.doc}});
  Json facts = Json::object();
  for (const auto& [table, of_table] : p.facts)
    for (const auto& [key, value] : of_table) facts[table][key] = value.text();
  std::cout << text_of({{"id", p.schema.id},
                        {"version", p.version},
                        {"summary", p.schema.summary},
                        {"source", p.source},
                        {"tier", p.tier},
                        {"abi", p.abi},
                        {"status", p.status},
                        {"points", points_of(p)},
                        {"library", p.library},
                        {"devices", p.devices},
                        {"facts", facts},
                        {"keys", keys}})
            << "\n";
}

int info(const std::map<std::string, PluginInfo>& known, const std::string& id) {
  const auto found = known.find(id);
  if (found == known.end()) {
    std::vector<std::string> ids;
    for (const auto& [each, p] : known) ids.push_back(each);
    Diagnostic d = mistake("unknown_plugin", "no plugin is called `" + id + "`");
    for (const std::string& each : ids)
      if (each.ends_with("." + id)) d.fixes.push_back("mortise plugin info " + each);
      else if (each.starts_with(id + ".")) d.fixes = {"mortise plugin list " + id};
    const std::string near = nearest(id, ids, 4);
    if (d.fixes.empty()) d.fixes = {near.empty() ? "mortise plugin list" : "mortise plugin info " + near};
    throw Failure(d);
  }
  const PluginInfo& p = found->second;
  if (globals().json) {
    print_info_json(p);
    return kExitOk;
  }
  std::ostringstream text;  // what a plugin says of itself comes from outside
  text << id << " " << p.version << "  " << p.schema.summary << "\n";
  text << "source   " << (p.source.empty() ? "-" : p.source) << "\ntier     " << p.tier << ", ABI " << p.abi << ", "
       << p.status << "\npoints   " << points_of(p) << "\nlibrary  " << p.library << "\n";
  if (!p.equals.empty())
    text << "equals   "
         << (p.equals == "exact"   ? "the run without it, bit for bit"
             : p.equals == "other" ? "no other run: it is another training"
                                   : "the run without it, losses within " + p.equals)
         << "\n";
  if (!p.syncs.empty()) text << "waits    for " << join(p.syncs, ", ") << "\n";
  if (!p.devices.empty()) text << "devices  " << join(p.devices, ", ") << "\n";
  for (const auto& [table, facts] : p.facts)  // of what it provides
    for (const auto& [key, value] : facts)
      text << "says     [" << table << "] " << key << " = " << value.text() << "\n";
  for (const auto& c : p.conflicts) text << "conflict " << c.with << ": " << c.why << "\n";
  text << "\n[" << id << "]\n";
  if (p.schema.config.keys.empty()) text << "  no keys of its own\n";
  Rows keys;
  for (const auto& [name, k] : p.schema.config.keys) keys.push_back(row_of(k));
  print_columns(text, keys);
  for (const auto& [name, v] : p.schema.family_defaults)
    text << "  family default: [" << p.schema.family << "] " << name << " = " << v.text() << "\n";
  for (const auto& [name, values] : p.schema.config.presets) {
    text << "  preset " << name << ":";
    for (const auto& [key, v] : values) text << " " << key << " = " << v.text();
    text << "\n";
  }
  std::cout << escape_lines(text.str());
  return kExitOk;
}

}  // namespace

int plugin(const Arguments& args) {
  Report report;
  std::vector<std::string> searched;
  const auto known = catalogue(args, nullptr, searched, report);
  if (report.has_errors()) say(report, "");
  const auto& words = args.positional;
  if (!words.empty() && words[0] == "list") return list(known, words.size() > 1 ? words[1] : "");
  if (words.size() == 2 && words[0] == "info") {
    // That its plugin.toml was refused has just been said.
    if (std::ranges::find(report.all(), words[1], &Diagnostic::plugin) != report.all().end() &&
        !known.contains(words[1]))
      throw Failed{report.exit_code()};
    return info(known, words[1]);
  }
  if (words.size() == 1 && words[0] == "info")
    throw Failure(mistake("missing_word", "`mortise plugin info` needs the id of a plugin: FAMILY.NAME", {},
                          "mortise plugin list   names them"));
  Diagnostic d =
      mistake("unknown_verb", words.empty() ? "`mortise plugin` needs to know what"
                                            : "`mortise plugin " + join(words, " ") + "` is not in this version");
  d.fixes = {"mortise plugin list [FAMILY]", "mortise plugin info ID"};
  if (words.size() == 1 && known.contains(words[0])) d.fixes = {"mortise plugin info " + words[0]};
  throw Failure(d);
}

}  // namespace mortise::cli
