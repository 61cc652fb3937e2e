#include "core/assemble/changes.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/store/files.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;
constexpr size_t kMostFixed = size_t{64} << 10;
constexpr const char* kEither = "on or off";  // in the place of "on": of a plugin that changes no number

struct Entry {
  std::string text, change;
  Position at;
  bool is_path = false;
};
using Entries = std::map<std::string, Entry>;

std::string change_of(const std::map<std::string, KeySchema>& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "fixed" : found->second.change;
}

std::string text_of(const Value& v) { return v.is_set() ? v.text() : "none"; }

Entry entry_of(const std::map<std::string, KeySchema>& keys, const std::string& key, const Value& value) {
  const auto found = keys.find(key);
  return {text_of(value), change_of(keys, key), value.origin, found != keys.end() && is_path_type(found->second.type)};
}

template <class T>
std::string list_text(const std::vector<T>& list) {
  std::vector<std::string> words;
  for (const auto& each : list) {
    if constexpr (std::is_same_v<T, std::string>) words.push_back(each);
    else words.push_back(std::to_string(each));
  }
  return words.empty() ? "none" : join(words, ", ");
}

// What it says itself. Else whoever only listens and watches, and writes nothing but records, changes no number.
std::string presence_of(const PluginInfo& info) {
  if (!info.change.empty()) return info.change;
  const bool writes =
      std::ranges::any_of(info.listens, [](const ListenInfo& l) { return l.point != "record" && !l.writes.empty(); });
  const bool wraps = std::ranges::any_of(info.wraps, [](const WrapInfo& w) { return w.band != "watch"; });
  return info.schema.provides.empty() && !wraps && !writes ? "free" : "fixed";
}

Entries entries_of(const Manifest& m, const std::map<std::string, PluginInfo>& catalogue) {
  Entries all;
  const CoreSchema& core = core_schema();
  for (const auto& [table, values] : m.tables)
    for (const auto& [key, value] : values)
      if (table != "run" || (key != "dir" && key != "name"))
        all[table + "." + key] = entry_of(core.tables.at(table).keys, key, value);
  for (const PluginTable& t : m.plugins) {
    if (!t.enabled) continue;
    const std::string& id = t.schema->id;
    all[id] = {"on", presence_of(catalogue.at(id)), t.origin};
    for (const auto& [key, value] : t.values) all[id + "." + key] = entry_of(t.schema->config.keys, key, value);
    Value where;
    if (t.where) where.data = *t.where;
    all[id + ".where"] = {text_of(where), "fixed", t.origin};
    all[id + ".modes"] = {list_text(t.modes), "fixed", t.origin};
    all[id + ".fallback"] = {list_text(t.fallback), "free", t.origin};  // who takes its place is said by who is on
  }
  for (const ParameterRule& r : m.rules) {
    const std::string name = "parameters." + r.name;
    Value where;
    where.data = r.where;
    all[name + ".where"] = {text_of(where), "fixed", r.origin};
    for (const auto& [key, value] : r.values)
      if (key != "where") all[name + "." + key] = entry_of(core.rule.keys, key, value);
  }
  return all;
}

// Below a plugin that came or went, its keys say nothing more.
bool is_told(const std::string& key, const Entries& was, const Entries& is) {
  const size_t dot = key.rfind('.');
  const std::string owner = key.substr(0, dot);
  return std::ranges::count(owner, '.') == 1 && was.contains(owner) != is.contains(owner);
}

[[noreturn]] void refuse(const std::string& at, const std::string& message) {
  Diagnostic d = trouble(kExitData, "other_state", message, at);
  d.effect = "nothing was restored";
  throw Failure(d);
}

}  // namespace

Fixed fixed_of(const Manifest& manifest, const std::map<std::string, PluginInfo>& catalogue) {
  Fixed fixed;
  for (const auto& [key, entry] : entries_of(manifest, catalogue))
    if (entry.change == "fixed" && !entry.is_path) fixed[key] = entry.text;
  for (const auto& [id, info] : catalogue)
    if (info.change == "free") fixed[id] = kEither;
  return fixed;
}

std::string fixed_text(const Fixed& fixed) {
  std::string text = Json(fixed).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  must_be_readable(kFixedFile, text, kMostFixed);
  return text;
}

void check_fixed(const Fixed& fixed, const Found& checkpoint) {
  const auto text = read_run_file_if_any(checkpoint.path, kFixedFile, kMostFixed);
  if (!text) return;  // saved before it was recorded
  const std::string path = checkpoint.path + "/" + kFixedFile;
  const Json was = Json::parse(*text, nullptr, /*allow_exceptions=*/false), is = Json::parse(fixed_text(fixed));
  if (!was.is_object()) refuse(path, "it is no JSON object");
  // A key that only one of them knows is of another version; a plugin that only one of them has is another run.
  const auto compare = [&](const Json& some, const Json& others) {
    for (const auto& item : some.items()) {
      const auto found = others.find(item.key());
      if (found == others.end() ? item.value() != "on" : *found == item.value() || *found == kEither) continue;
      if (item.value() == kEither) continue;
      const auto shown = [&](const Json& j) {
        return j.contains(item.key()) ? escape_control(j[item.key()].dump()) : "\"off\"";
      };
      Diagnostic d = trouble(kExitData, "other_state",
                             "it is of another run: `" + escape_control(item.key()) + "` is " + shown(was) +
                                 " there, and " + shown(is) + " in this run",
                             path, "put run.toml or the checkpoint back as it was, or begin a new run");
      d.effect = "nothing was restored";
      throw Failure(d);
    }
  };
  compare(is, was);
  compare(was, is);
}

std::vector<Change> changes_between(const Manifest& was, const Manifest& is,
                                    const std::map<std::string, PluginInfo>& catalogue) {
  const Entries before = entries_of(was, catalogue), after = entries_of(is, catalogue);
  std::vector<Change> all;
  for (const auto& [key, old] : before) {
    const auto now = after.find(key);
    if (is_told(key, before, after)) continue;
    if (now == after.end())
      all.push_back({key, old.text, key.find('.') == key.rfind('.') ? "off" : "none", old.change, old.at, {}});
    else if (now->second.text != old.text)
      all.push_back({key, old.text, now->second.text, now->second.change, old.at, now->second.at});
  }
  for (const auto& [key, now] : after)
    if (!before.contains(key) && !is_told(key, before, after))
      all.push_back({key, now.text == "on" ? "off" : "none", now.text, now.change, {}, now.at});
  std::ranges::stable_sort(all, {}, [](const Change& c) {
    return c.change == "fixed" ? 0 : c.change == "numeric" ? 1 : 2;
  });  // the gravest first
  return all;
}

std::vector<std::string> lines_of(const std::vector<Change>& changes) {
  size_t widest = 0;
  for (const Change& c : changes) widest = std::max(widest, c.key.size());
  std::vector<std::string> lines;
  for (const Change& c : changes) {
    std::string line = c.change + std::string(9 - c.change.size(), ' ') + c.key +
                       std::string(widest + 2 - c.key.size(), ' ') + c.was + " -> " + c.is;
    if (c.is_at) line += "     " + c.is_at.text();
    if (c.was_at) line += " (was " + c.was_at.text() + ")";
    lines.push_back(line + (c.change == "free" ? "     (would be taken)" : ""));
  }
  return lines;
}

bool follows(const Change& c) {
  const auto table = core_schema().tables.find(c.key.substr(0, c.key.find('.')));
  if (table == core_schema().tables.end()) return false;
  const auto key = table->second.keys.find(c.key.substr(c.key.find('.') + 1));
  return key != table->second.keys.end() && !key->second.same_as.empty() && c.is_at.key == key->second.same_as;
}

void drop_unchanged(std::vector<Diagnostic>& warnings, const std::vector<Change>& changes) {
  std::erase_if(warnings, [&](const Diagnostic& d) {
    return d.positions.empty() || std::ranges::count(changes, d.positions[0].key, &Change::key) == 0;
  });
}

}  // namespace mortise
