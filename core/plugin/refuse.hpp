// The one form in which a library is refused.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/plugin/plugin_info.hpp"

namespace mortise {

[[noreturn]] inline void refuse(const PluginInfo& info, std::string code, std::string message, std::vector<std::string> fixes) {
  Diagnostic d;
  d.code = std::move(code);
  d.message = std::move(message);
  d.at = info.library;
  d.effect = "it was not loaded";
  d.fixes = std::move(fixes);
  d.plugin = info.schema.id;
  d.exit = kExitPlugin;
  throw Failure(std::move(d));
}

}  // namespace mortise
