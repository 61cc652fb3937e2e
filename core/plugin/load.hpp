// From a file to a plugin's descriptor: ELF check, probe in a child process, dlopen, handshake. Never closed again.
#pragma once
#include <string>

#include "core/base/diagnostic.hpp"
#include "core/plugin/plugin_info.hpp"
#include "mortise/abi.h"

namespace mortise {

// Throws Failure, a code of its own for each way to be wrong. `probe` is the path of the mortise-probe helper; "" skips the probe (tests).
// One thread at a time. [build]
const mortise_plugin* load_plugin(const PluginInfo& info, const std::string& probe);

}  // namespace mortise
