// Devices that are counted without opening one.
#pragma once
#include <string>

#include "core/plugin/plugin_info.hpp"

namespace mortise {

// How many devices this process sees: those that the variable lists, if it is set; else there is a file for each, with
// a number at its end. [needs] of plugin.toml says both, `hidden_by` and `numbered`. 0: nobody knows. Opens none.
int devices_seen(const PluginInfo& info);

}  // namespace mortise
