// From a file to a plugin's descriptor: ELF check, probe in a child process, dlopen, handshake. Never closed again.
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/image.hpp"
#include "core/plugin/plugin_info.hpp"
#include "mortise/abi.h"

namespace mortise {

constexpr std::pair<int, int> kOurAbi{MORTISE_ABI_MAJOR, MORTISE_ABI_MINOR};
inline std::string abi_text(std::pair<int, int> abi) {
  return std::to_string(abi.first) + "." + std::to_string(abi.second);
}

// Refuses, by a Failure, a library whose own bytes say that it is not a plugin for this machine and for what its
// plugin.toml says of it. True if it finds libraries of its own by where it lies ($ORIGIN): it cannot be loaded from
// elsewhere.
bool check_elf(const PluginInfo& info, std::string_view bytes);

// What dlopen() is given, by the host and by the probe.
struct LoadFrom {
  std::string path;
  int file = -1;  // behind a path of /proc/self/fd; the probe gets it under the same number; -1: `path` is a file's
};

// Returns when `helper` (mortise-probe) loaded the library in a process of its own and found a sound descriptor in it;
// throws a Failure for each other end.
void probe(const PluginInfo& info, const LoadFrom& from, const std::string& helper,
           std::chrono::milliseconds limit = std::chrono::seconds(5));
// True if `helper` loaded them all, one after another in one process; else each must be probed alone, which names the
// one at fault.
bool load_together(const std::vector<LoadFrom>& libraries, const std::string& helper);

// What the loader says, with the name that a person knows where it says `path`.
std::string loader_text(std::string text, const std::string& path, const std::string& library);
// What the loader said of a library that it does not take; `path` as above.
[[noreturn]] void refuse_unloaded(const PluginInfo& info, const std::string& said, const std::string& path);

struct LoadedPlugin {
  const mortise_plugin* descriptor = nullptr;
  std::string_view library;  // the bytes of what was loaded, for its hash; they stay
};

// Libraries that were read and probed, by their plugins' ids.
using ProbedLibraries = std::map<std::string, LibraryImage>;

// One process of the helper for all of these instead of one each, which would be most of a start's time. Empty if any
// is not sound: load_plugin() then says which, in its turn. A plugin that is loaded already, that the probe does not
// take or that is loaded from its file is not among them.
ProbedLibraries probe_ahead(const std::vector<const PluginInfo*>& plugins, const std::string& helper);

// All of it. Throws Failure, a code of its own for each way to be wrong. `helper` is the path of mortise-probe; ""
// skips the probe (tests). What is in `probed` is taken from there. One thread at a time. [build]
LoadedPlugin load_plugin(const PluginInfo& info, const std::string& helper, ProbedLibraries& probed);
inline LoadedPlugin load_plugin(const PluginInfo& info, const std::string& helper) {
  ProbedLibraries none;
  return load_plugin(info, helper, none);
}

}  // namespace mortise
