// What a library's own bytes say, before anything of it is mapped or run.
#pragma once
#include "core/plugin/plugin_info.hpp"

namespace mortise {

// Refuses, by a Failure, a library that is not a plugin for this machine and for what its plugin.toml says of it.
void check_elf(const PluginInfo& info);

}  // namespace mortise
