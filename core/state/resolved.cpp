// The manifest as it was resolved: every value that was stated or derived from a layer, with its source beside it; runs as it is from anywhere.
#include <sstream>

#include "core/state/run_directory.hpp"

namespace mortise {
namespace {

void write_value(std::ostream& out, const std::string& key, const Value& v) {
  if (!v.is_set()) return;
  out << key << " = " << v.text();
  if (v.origin) out << "  # " << v.origin.text();
  out << "\n";
}

void write_host_keys(std::ostream& out, const PluginTable& t) {
  if (t.where) {
    Value v;
    v.data = *t.where;
    out << "where = " << v.text() << "\n";
  }
  if (t.modes.empty()) return;
  static const char* const kModes[] = {"train", "eval", "sample"};
  out << "modes = [";
  for (size_t i = 0; i < t.modes.size(); ++i) out << (i ? ", " : "") << '"' << kModes[t.modes[i]] << '"';
  out << "]\n";
}

}  // namespace

std::string resolved_toml(const Manifest& m) {
  std::ostringstream out;
  out << "# the manifest as it was resolved; it runs as it is\n";
  for (const auto& [table, values] : m.tables) {
    out << "\n[" << table << "]\n";
    for (const auto& [key, v] : values)
      if (!(table == "run" && key == "dir")) write_value(out, key, v);
    if (table == "run" && !values.at("name").is_set()) out << "name = \"" << m.name << "\"\n";
  }
  for (const auto& p : m.plugins) {
    out << "\n[" << p.schema->id << "]";
    if (p.origin) out << "  # " << p.origin.text();
    out << "\n";
    if (!p.enabled) out << "enabled = false\n";
    write_host_keys(out, p);
    for (const auto& [key, v] : p.values) write_value(out, key, v);
  }
  for (const auto& r : m.rules) {
    out << "\n[parameters." << r.name << "]\n";
    Value where;
    where.data = r.where;
    out << "where = " << where.text() << "\n";
    for (const auto& [key, v] : r.values)
      if (key != "where") write_value(out, key, v);
  }
  return out.str();
}

}  // namespace mortise
