// Asks a child process whether a library can be loaded at all.
#pragma once
#include <chrono>
#include <string>

#include "core/plugin/plugin_info.hpp"

namespace mortise {

// Returns when `helper` (mortise-probe) loaded info.library and found a sound descriptor in it; throws a Failure for each other end.
void probe(const PluginInfo& info, const std::string& helper, std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace mortise
