// The manifest as it was resolved: one file, whose tables say in which layer they stood, so that who takes a place from
// whom is settled again as it was. Tables that were replaced whole are left out.
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

// The beginning of a table, and where it stands.
void write_head(std::ostream& out, const std::string& name, const Position& origin, int layer) {
  out << "\n[" << name << "]" << (origin ? "  # " + escape_control(origin.text()) : "") << "\n";
  write_value(out, "layer", {int64_t{layer}, {}});
}

Value list_of(const std::vector<std::string>& texts) {
  std::vector<Value> all;
  for (const std::string& text : texts) all.push_back({text, {}});
  return all.empty() ? Value{} : Value{std::move(all), {}};
}

// Without a place of its own in the plan, the table was replaced. One whose stand-in works has it through its
// `fallback`.
bool takes_part(const PluginTable& t, const Plan& plan) {
  if (!t.enabled || !t.fallback.empty()) return true;
  return std::ranges::any_of(plan.members,
                             [&](const Member& m) { return m.table && m.table->schema->id == t.schema->id; });
}

void write_plugin(std::ostream& out, const PluginTable& t) {
  write_head(out, t.schema->id, t.origin, t.layer);
  if (!t.enabled) return write_value(out, "enabled", {false, {}});
  std::vector<std::string> modes;
  for (int mode : t.modes) modes.emplace_back(kModes[mode]);
  if (t.where) write_value(out, "where", {*t.where, {}});
  write_value(out, "modes", list_of(modes));
  write_value(out, "fallback", list_of(t.fallback));
  for (const auto& [key, v] : t.values) write_value(out, key, v);
}

void write_rule(std::ostream& out, const ParameterRule& r) {
  write_head(out, "parameters." + r.name, {}, r.layer);
  write_value(out, "where", {r.where, {}});
  for (const auto& [key, v] : r.values) write_value(out, key, v);
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
  out << fmt::format("{}{} · plan {} · from {}\n", kResolvedMark, MORTISE_VERSION, plan.hash,
                     escape_control(layers_text(m)));
  for (const auto& [table, values] : m.tables) {
    out << "\n[" << table << "]\n";
    for (const auto& [key, v] : values)
      if (!(table == "run" && key == "dir") && !is_borrowed(table + "." + key, v))
        write_value(out, key.find('.') == key.npos ? key : json_string(key), v);
  }
  for (const auto& p : m.plugins)
    if (takes_part(p, plan)) write_plugin(out, p);
  for (const auto& r : m.rules) write_rule(out, r);
  return out.str();
}

std::string toml_without_origins(Manifest m, const Plan& plan) {
  const auto forget = [](auto& values) {
    for (auto& [key, v] : values) v.origin.file.clear();
  };
  m.layers.clear();
  for (auto& [table, values] : m.tables) forget(values);
  for (PluginTable& t : m.plugins) t.origin.file.clear(), forget(t.values);
  for (ParameterRule& r : m.rules) forget(r.values);
  return resolved_toml(m, plan);
}

}  // namespace mortise::cli
