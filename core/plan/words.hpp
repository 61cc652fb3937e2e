// Small pieces of text that the plan's errors and pages share.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/text.hpp"
#include "core/plan/plan.hpp"

namespace mortise::words {

inline const std::string& id_of(const PluginInfo& info) { return info.schema.id; }
inline const PluginInfo& info_of(const Plan& plan, int member) { return *plan.members[member].info; }
inline const std::string& id_of(const Plan& plan, int member) { return id_of(info_of(plan, member)); }
inline std::string quoted(std::string_view name) { return "`" + std::string(name) + "`"; }
inline std::string table_of(const PluginInfo& info) { return "[" + id_of(info) + "]"; }

// "gpt2.toml:13": without the column, for tables of text.
inline std::string short_text(const Position& position) {
  const std::string text = position.line > 0 ? position.file + ":" + std::to_string(position.line) : position.text();
  return escape_control(text);
}

inline bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

inline bool share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& name) { return contains(b, name); });
}

// Names in `after`, `requires`, `conflicts`: an id or a capability.
inline bool stands_for(const PluginInfo& info, const std::string& name) {
  return id_of(info) == name || contains(info.capabilities, name);
}

inline constexpr unsigned kAllModes = 7;
inline constexpr std::string_view kModes[] = {"train", "eval", "sample"};
inline std::vector<std::string> mode_names(unsigned modes) {
  std::vector<std::string> names;
  for (unsigned mode = 0; mode < std::size(kModes); ++mode)
    if (modes >> mode & 1) names.emplace_back(kModes[mode]);
  return names;
}
inline unsigned modes_of(const PluginTable& table) {
  unsigned modes = 0;
  for (int mode : table.modes) modes |= 1u << mode;
  return modes ? modes : kAllModes;
}
inline unsigned modes_of(const WrapInfo& wrap) {
  unsigned modes = 0;
  for (unsigned mode = 0; mode < std::size(kModes); ++mode)
    if (contains(wrap.modes, std::string(kModes[mode]))) modes |= 1u << mode;
  return modes ? modes : kAllModes;
}

// What switched it on: "--use ID", or "[ID]" of a file.
inline std::string as_written(const PluginInfo& info, const Position& origin) {
  const std::string typed = origin.typed();
  return typed.empty() ? table_of(info) : typed;
}

// `written`, which switches `id` on, in place of what the command line says against it. `holder`: the table that has
// the place.
inline std::string in_place(std::string written, const std::string& id, const Manifest& manifest,
                            const Position& holder = {}) {
  const auto by = manifest.refused.find(id);
  return in_place_of(std::move(written), {holder.typed(), by == manifest.refused.end() ? "" : by->second});
}

// An error with as many positions and fixes as it has sides; its other fields are filled where it is made.
inline Diagnostic refusal(std::string code, std::string message, std::vector<Position> positions = {},
                          std::vector<std::string> fixes = {}) {
  std::erase_if(positions, [](const Position& position) { return !position; });
  Diagnostic d;
  d.code = std::move(code);
  d.message = std::move(message);
  d.positions = std::move(positions);
  d.fixes = std::move(fixes);
  return d;
}

}  // namespace mortise::words
