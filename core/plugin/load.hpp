// From a file to a plugin's descriptor: ELF check, probe in a child process, dlopen, handshake. Never closed again.
#pragma once
#include <chrono>
#include <string>

#include "core/plugin/plugin_info.hpp"
#include "mortise/abi.h"

namespace mortise {

// Refuses, by a Failure, a library whose own bytes say that it is not a plugin for this machine and for what its
// plugin.toml says of it.
void check_elf(const PluginInfo& info);

// Returns when `helper` (mortise-probe) loaded info.library in a process of its own and found a sound descriptor in it;
// throws a Failure for each other end.
void probe(const PluginInfo& info, const std::string& helper,
           std::chrono::milliseconds limit = std::chrono::seconds(5));

// All of it. Throws Failure, a code of its own for each way to be wrong. `helper` is the path of mortise-probe; ""
// skips the probe (tests). One thread at a time. [build]
const mortise_plugin* load_plugin(const PluginInfo& info, const std::string& helper);

}  // namespace mortise
