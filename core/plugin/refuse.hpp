// The one form in which a plugin is refused.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/plugin/plugin_info.hpp"

namespace mortise {

// How an author builds one with the SDK, in the folder of its CMakeLists.txt.
inline const std::string kBuildIt = "cmake -B build -DCMAKE_PREFIX_PATH=$(mortise --prefix) && cmake --build build";
inline const std::string kRebuild = "rebuild it against this installation: " + kBuildIt;

inline Diagnostic plugin_error(std::string id, std::string code, std::string message, std::string at,
                               std::vector<std::string> fixes) {
  Diagnostic d = mistake(std::move(code), std::move(message));
  d.at = std::move(at);
  d.fixes = std::move(fixes);
  d.plugin = std::move(id);
  d.exit = kExitPlugin;
  return d;
}

[[noreturn]] inline void refuse(const PluginInfo& info, std::string code, std::string message,
                                std::vector<std::string> fixes) {
  Diagnostic d = plugin_error(info.schema.id, std::move(code), std::move(message), info.library, std::move(fixes));
  d.effect = "it was not loaded";
  throw Failure(std::move(d));
}

}  // namespace mortise
