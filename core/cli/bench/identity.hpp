// By what, and where, rows were measured: rows of another build or machine are not put beside these.
#pragma once
#include <map>
#include <string>

#include "core/plugin/plugin_info.hpp"

namespace mortise::cli {

// Of the bytes of Mortise's program and library, of every plugin that is found, and of `program`, which runs the row
// ("": `mortise train`).
std::string build_of(const std::map<std::string, PluginInfo>& catalogue, const std::string& program);
// "HOST, PROCESSOR, 16 processors, NVIDIA H100": with the devices that plugins know, by plugin.toml alone.
std::string machine_of(const std::map<std::string, PluginInfo>& catalogue);
std::string processor_name();
// The program that a row names without a folder: the one beside `mortise`, else whatever PATH has.
std::string program_named(const std::string& name);

}  // namespace mortise::cli
