// mortise plugin list [FAMILY] · mortise plugin info ID
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"

namespace mortise::cli {
namespace {

std::string points_of(const PluginInfo& p) {
  std::vector<std::string> all = p.schema.provides;
  for (const auto& w : p.wraps) all.push_back("around " + w.point + " (" + w.band + ")");
  for (const auto& l : p.listens) all.push_back("on " + l.point);
  return join(all, ", ");
}

int list(const std::map<std::string, PluginInfo>& known, const std::string& family) {
  bool any = false;
  for (const auto& [id, p] : known) {
    if (!family.empty() && p.schema.family != family) continue;
    if (globals().json) {
      std::cout << (any ? ",\n" : "{\"plugins\":[") << "{\"id\":" << json_string(id)
                << ",\"version\":" << json_string(p.version) << ",\"tier\":" << json_string(p.tier)
                << ",\"status\":" << json_string(p.status) << ",\"summary\":" << json_string(p.schema.summary)
                << ",\"library\":" << json_string(p.library) << "}";
    } else {
      std::cout << std::left << std::setw(28) << id << std::setw(8) << p.version << std::setw(10) << p.tier
                << escape_control(p.schema.summary) << "\n";
    }
    any = true;
  }
  if (globals().json) std::cout << (any ? "]}\n" : "{\"plugins\":[]}\n");
  if (any || globals().json) return kExitOk;
  std::vector<std::string> families;
  for (const auto& [id, p] : known)
    if (std::find(families.begin(), families.end(), p.schema.family) == families.end())
      families.push_back(p.schema.family);
  const std::string near = nearest(family, families);
  throw Failure(mistake("unknown_family", "no plugin of the family `" + family + "` is installed", {},
                        near.empty() ? "families: " + join(families, " ") : "mortise plugin list " + near));
}

void print_key(std::ostream& out, const KeySchema& k) {
  out << "  " << std::left << std::setw(20) << k.name << std::setw(14) << k.type << std::setw(16)
      << (k.default_value.is_set() ? k.default_value.text() : "-") << k.doc << "  (" << k.change << ")\n";
}

void print_info_json(const PluginInfo& p) {
  std::string keys;
  for (const auto& [name, k] : p.schema.config.keys)
    keys += std::string(keys.empty() ? "" : ",\n") + "{\"key\":" + json_string(name) +
            ",\"type\":" + json_string(k.type) +
            ",\"default\":" + (k.default_value.is_set() ? json_string(k.default_value.text()) : "null") +
            ",\"change\":" + json_string(k.change) + ",\"doc\":" + json_string(k.doc) + "}";
  std::cout << "{\"id\":" << json_string(p.schema.id) << ",\"version\":" << json_string(p.version)
            << ",\"summary\":" << json_string(p.schema.summary) << ",\"source\":" << json_string(p.source)
            << ",\"tier\":" << json_string(p.tier) << ",\"abi\":" << json_string(p.abi)
            << ",\"status\":" << json_string(p.status) << ",\"points\":" << json_string(points_of(p))
            << ",\"library\":" << json_string(p.library) << ",\"keys\":[" << keys << "]}\n";
}

int info(const std::map<std::string, PluginInfo>& known, const std::string& id) {
  const auto found = known.find(id);
  if (found == known.end()) {
    std::vector<std::string> ids;
    for (const auto& [each, p] : known) ids.push_back(each);
    const std::string near = nearest(id, ids, 4);
    throw Failure(mistake("unknown_plugin", "no plugin is called `" + id + "`", {},
                          near.empty() ? "mortise plugin list" : "mortise plugin info " + near));
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
  if (!p.syncs.empty()) text << "waits    for " << join(p.syncs, ", ") << "\n";
  for (const auto& c : p.conflicts) text << "conflict " << c.with << ": " << c.why << "\n";
  text << "\n[" << id << "]\n";
  if (p.schema.config.keys.empty()) text << "  no keys of its own\n";
  for (const auto& [name, k] : p.schema.config.keys) print_key(text, k);
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
  if (words.size() == 2 && words[0] == "info") return info(known, words[1]);
  Diagnostic d =
      mistake("unknown_verb", words.empty() ? "`mortise plugin` needs to know what"
                                            : "`mortise plugin " + join(words, " ") + "` is not in this version");
  d.fixes = {"mortise plugin list [FAMILY]", "mortise plugin info ID"};
  throw Failure(d);
}

}  // namespace mortise::cli
