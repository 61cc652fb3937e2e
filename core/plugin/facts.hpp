// Static facts of a plugin.toml beyond its schema: [data] threads = …, [model] context = …, [frame] compute_dtype = …, [advice] text = …
#pragma once
#include "core/plugin/plugin_info.hpp"

namespace mortise {

// The fact, or NULL if plugin.toml does not state it.
inline const Value* fact_of(const PluginInfo& info, const std::string& table, const std::string& key) {
  const auto found = info.facts.find(table);
  if (found == info.facts.end()) return nullptr;
  const auto value = found->second.find(key);
  return value == found->second.end() ? nullptr : &value->second;
}

}  // namespace mortise
