// The manifest as it was resolved. Layers are gone in one file, so what they settled is written down: tables that were
// replaced are left out, and a lower layer's `where` leaves out what a higher one took.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <sstream>

#include "core/base/text.hpp"
#include "core/cli/run_directory.hpp"

namespace mortise::cli {
namespace {

constexpr const char* kModes[] = {"train", "eval", "sample"};

// Files that a pattern matched, as the pattern: it says the same in one line, whatever their number.
Value with_globs(Value v) {
  if (!std::holds_alternative<std::vector<Value>>(v.data)) return v;
  std::vector<Value> written;
  std::string last;
  for (Value& each : std::get<std::vector<Value>>(v.data)) {
    const bool again = !each.glob.empty() && each.glob == last;
    last = each.glob;
    if (!last.empty()) each.data = last;
    if (!again) written.push_back(std::move(each));
  }
  v.data = std::move(written);
  return v;
}

void write_value(std::ostream& out, const std::string& key, const Value& v) {
  if (!v.is_set()) return;
  const std::string line = key + " = " + with_globs(v).text();
  if (v.origin) out << fmt::format("{:<35} # {}\n", line, escape_control(v.origin.text()));
  else out << line << "\n";
}

void write_selector(std::ostream& out, const Selector& where) {
  Value v;
  v.data = where;
  out << "where = " << v.text() << "\n";
}

bool share_any(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& each) { return std::ranges::find(b, each) != b.end(); });
}

// Only a plain list of patterns can be taken away from another.
void leave_out(Selector& lower, const Selector& higher) {
  if (!higher.except.empty() || higher.every != 1 || higher.from != 0) return;
  for (const auto& pattern : higher.match)
    if (std::ranges::find(lower.except, pattern) == lower.except.end()) lower.except.push_back(pattern);
}

// Without a place of its own in the plan, the table was replaced. One whose stand-in works has it through its
// `fallback`.
bool takes_part(const PluginTable& t, const Plan& plan) {
  if (!t.enabled || !t.fallback.empty()) return true;
  return std::ranges::any_of(plan.members,
                             [&](const Member& m) { return m.table && m.table->schema->id == t.schema->id; });
}

void write_plugin(std::ostream& out, PluginTable t, const Manifest& manifest) {
  for (const PluginTable& other : manifest.plugins)
    if (t.where && other.enabled && other.where && other.layer > t.layer &&
        (share_any(t.schema->provides, other.schema->provides) ||
         share_any(t.schema->exclusive, other.schema->exclusive)))
      leave_out(*t.where, *other.where);
  out << "\n[" << t.schema->id << "]";
  if (t.origin) out << "  # " << escape_control(t.origin.text());
  out << "\n";
  if (!t.enabled) {
    out << "enabled = false\n";
    return;
  }
  if (t.where) write_selector(out, *t.where);
  std::vector<std::string> modes, fallback;
  for (int mode : t.modes) modes.push_back(json_string(kModes[mode]));
  for (const auto& id : t.fallback) fallback.push_back(json_string(id));
  if (!modes.empty()) out << "modes = [" << join(modes, ", ") << "]\n";
  if (!fallback.empty()) out << "fallback = [" << join(fallback, ", ") << "]\n";
  for (const auto& [key, v] : t.values) write_value(out, key, v);
}

void write_rule(std::ostream& out, ParameterRule r, const Manifest& manifest) {
  const auto covers = [&](const ParameterRule& other) {
    return std::ranges::all_of(
        r.values, [&](const auto& each) { return each.first == "where" || other.values.contains(each.first); });
  };
  for (const ParameterRule& other : manifest.rules)
    if (other.layer > r.layer && covers(other)) leave_out(r.where, other.where);
  out << "\n[parameters." << r.name << "]\n";
  write_selector(out, r.where);
  for (const auto& [key, v] : r.values)
    if (key != "where") write_value(out, key, v);
}

// Some keys without a value have that of another; stated here, they would no longer follow it.
bool is_borrowed(const std::string& key, const Value& v) { return !v.origin.key.empty() && v.origin.key != key; }

}  // namespace

std::string layers_text(const Manifest& m) {
  std::vector<std::string> names(m.layers.rbegin(), m.layers.rend());
  const bool by_command = !names.empty() && names[0] == kCommandLine;
  if (by_command) std::ranges::rotate(names, names.begin() + 1);
  return join(names, ", ");
}

std::string resolved_toml(const Manifest& m, const Plan& plan) {
  std::ostringstream out;
  out << fmt::format("# mortise {} · plan {} · from {}\n", MORTISE_VERSION, plan.hash, escape_control(layers_text(m)));
  for (const auto& [table, values] : m.tables) {
    out << "\n[" << table << "]\n";
    for (const auto& [key, v] : values)
      if (!(table == "run" && key == "dir") && !is_borrowed(table + "." + key, v))
        write_value(out, key.find('.') == key.npos ? key : json_string(key), v);
  }
  for (const auto& p : m.plugins)
    if (takes_part(p, plan)) write_plugin(out, p, m);
  for (const auto& r : m.rules) write_rule(out, r, m);
  return out.str();
}

}  // namespace mortise::cli
