#include "core/plugin/load.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/plugin/descriptor.hpp"
#include "core/plugin/refuse.hpp"

namespace mortise {
namespace {

void check_readable(const PluginInfo& info) {
  if (!std::filesystem::exists(info.library))
    refuse(info, "plugin_missing", info.schema.id + " has a plugin.toml, but no library",
           {"copy the library there, or build it: " + kBuildIt});
  if (access(info.library.c_str(), R_OK) != 0)
    refuse(info, "plugin_missing", info.schema.id + " cannot be read: " + strerror(errno),
           {"chmod a+r " + info.library});
}

// `abi` is "0.1"; its form was checked when plugin.toml was read.
std::pair<int, int> wanted_abi(const PluginInfo& info) {
  int major = -1, minor = -1;
  std::sscanf(info.abi.c_str(), "%d.%d", &major, &minor);
  return {major, minor};
}

// Its own words and the descriptor's must both fit; the plan believed the first before any code ran.
void check_abi(const PluginInfo& info, std::pair<int, int> abi, std::pair<int, int> at_least) {
  const std::pair<int, int> ours{MORTISE_ABI_MAJOR, MORTISE_ABI_MINOR};
  if (abi.first == ours.first && at_least <= abi && abi <= ours) return;
  const auto text = [](std::pair<int, int> v) { return std::to_string(v.first) + "." + std::to_string(v.second); };
  if (abi < at_least)
    refuse(info, "built_for_another",
           info.schema.id + " is built for ABI " + text(abi) + "; its plugin.toml asks for " + text(at_least),
           {kRebuild});
  refuse(info, "built_for_another", info.schema.id + " is built for ABI " + text(abi) + "; this is " + text(ours),
         {abi > ours ? "install a newer Mortise, or " + kRebuild : kRebuild});
}

// Boost's error_code overload says "Bad file descriptor" of everything; the throwing one carries the loader's text,
// inside its own.
std::string loader_text(std::string_view text) {
  constexpr std::string_view kBefore = "(dlerror system message: ", kAfter = "): ";
  const size_t from = text.find(kBefore), to = text.rfind(kAfter);
  return std::string(from != text.npos && to != text.npos && to > from
                         ? text.substr(from + kBefore.size(), to - from - kBefore.size())
                         : text);
}

decltype(&mortise_plugin_v0) open(const PluginInfo& info) {
  using namespace boost::dll;
  const auto mode = load_mode::rtld_now | load_mode::rtld_local | static_cast<load_mode::type>(RTLD_NODELETE);
  try {
    // Never closed: its code may stand in tables of ours and on stacks of other threads until the process ends.
    static auto* const kept = new std::vector<shared_library>;
    return kept->emplace_back(std::filesystem::absolute(info.library), mode)
        .get<const mortise_plugin*() noexcept>("mortise_plugin_v0");
  } catch (const std::exception& e) {
    refuse(info, "load_failed", info.schema.id + " does not load: " + escape_control(loader_text(e.what())),
           {kRebuild});
  }
}

int line_of_difference(std::string_view a, std::string_view b) {
  return 1 + static_cast<int>(std::count(a.begin(), std::ranges::mismatch(a, b).in1, '\n'));
}

const mortise_plugin* shake_hands(const PluginInfo& info, const mortise_plugin* plugin) {
  if (const char* fault = descriptor_fault(plugin))
    refuse(info, "handshake_failed", info.schema.id + ": " + fault, {kRebuild});
  check_abi(info, {plugin->abi_major, plugin->abi_minor}, wanted_abi(info));
  const std::string_view carried(plugin->manifest.ptr, plugin->manifest.len);
  if (carried != info.toml_text)
    refuse(info, "manifest_differs",
           info.schema.id + " carries another plugin.toml than the one beside it; they part in line " +
               std::to_string(line_of_difference(carried, info.toml_text)),
           {"put both files there from one build: " + info.toml_path});
  return plugin;
}

}  // namespace

const mortise_plugin* load_plugin(const PluginInfo& info, const std::string& helper) {
  check_readable(info);
  check_elf(info);
  check_abi(info, wanted_abi(info), {0, 0});
  // A native plugin is not probed: the helper has no LibTorch, and loading it there would take most of a second.
  if (!helper.empty() && info.tier != "native") probe(info, helper);
  return shake_hands(info, open(info)());
}

}  // namespace mortise
