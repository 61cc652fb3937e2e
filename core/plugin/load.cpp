#include "core/plugin/load.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/crash.hpp"
#include "core/plugin/descriptor.hpp"
#include "core/plugin/refuse.hpp"

namespace mortise {
namespace {

// `abi` is "0.1"; its form was checked when plugin.toml was read.
std::pair<int, int> wanted_abi(const PluginInfo& info) {
  int major = -1, minor = -1;
  std::sscanf(info.abi.c_str(), "%d.%d", &major, &minor);
  return {major, minor};
}

// Its own words and the descriptor's must both fit; the plan believed the first before any code ran.
void check_abi(const PluginInfo& info, std::pair<int, int> abi, std::pair<int, int> at_least) {
  if (abi.first == kOurAbi.first && at_least <= abi && abi <= kOurAbi) return;
  if (abi < at_least)
    refuse(info, "built_for_another",
           info.schema.id + " is built for ABI " + abi_text(abi) + "; its plugin.toml asks for " + abi_text(at_least),
           {kRebuild});
  if (abi > kOurAbi && at_least == std::pair(0, 0))  // what plugin.toml asks for
    refuse(info, "built_for_another",
           info.schema.id + " asks for ABI " + abi_text(abi) + "; this Mortise is older and has " + abi_text(kOurAbi),
           {"install a Mortise that has ABI " + abi_text(abi) + ": mortise --version says which one has",
            "or, if it is yours and needs nothing newer: abi = \"" + abi_text(kOurAbi) + "\" in its plugin.toml"});
  refuse(info, "built_for_another",
         info.schema.id + " is built for ABI " + abi_text(abi) + "; this is " + abi_text(kOurAbi),
         {abi > kOurAbi ? "install a newer Mortise, or " + kRebuild : kRebuild});
}

using Entry = decltype(&mortise_plugin_v0);

// A library that is loaded. Never closed: its code may stand in tables of ours and on stacks of other threads until the
// process ends, and its file stays open because the loader knows it by the descriptor's number.
struct Library {
  LibraryImage image;
  Entry entry;
};

std::vector<std::unique_ptr<Library>>& libraries() {
  static auto* const all = new std::vector<std::unique_ptr<Library>>;
  return *all;
}

const Library* find_loaded(const LibraryImage& image) {
  const auto same = [&](const auto& library) { return library->image.bytes() == image.bytes(); };
  const auto found = std::ranges::find_if(libraries(), same);
  return found == libraries().end() ? nullptr : found->get();
}

// A native plugin is not probed: the helper has no LibTorch, and loading it there would take most of a second.
bool is_probed(const PluginInfo& info, const std::string& helper) { return !helper.empty() && info.tier != "native"; }

// A debugger and a profiler find symbols by the file's own name.
bool asked_for_files() { return std::getenv("MORTISE_PLUGINS_FROM_FILES") != nullptr; }

// From the bytes that were checked; from the file itself where that cannot be.
LoadFrom where_from(const PluginInfo& info, const LibraryImage& image, bool needs_its_folder) {
  if (needs_its_folder || asked_for_files()) {
    if (!asked_for_files())
      log(LogLevel::kInfo,
          info.schema.id + " finds libraries beside it ($ORIGIN), so it is loaded from its file: " + info.library);
    return {std::filesystem::absolute(info.library).string(), -1};
  }
  if (!image.not_from_memory().empty())
    log(LogLevel::kInfo, info.schema.id + " is loaded from its file, not from memory: " + image.not_from_memory());
  return {image.path(), image.file()};
}

void register_code_of(const std::string& id, void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return;
  struct Wanted {
    const std::string& id;
    ElfW(Addr) base;
  } wanted{id, map->l_addr};
  dl_iterate_phdr(
      [](dl_phdr_info* loaded, size_t, void* user) {
        const auto& each = *static_cast<Wanted*>(user);
        if (loaded->dlpi_addr != each.base) return 0;
        for (int i = 0; i < loaded->dlpi_phnum; ++i) {
          const ElfW(Phdr) & part = loaded->dlpi_phdr[i];
          if (part.p_type == PT_LOAD && (part.p_flags & PF_X))
            register_code(each.id, reinterpret_cast<const void*>(each.base + part.p_vaddr), part.p_memsz);
        }
        return 1;
      },
      &wanted);
}

const Library& open(const PluginInfo& info, LibraryImage image, const LoadFrom& from) {
  const PluginScope scope(info.schema.id, "its constructors");
  std::fenv_t arithmetic;
  std::fegetenv(&arithmetic);
  void* const handle = dlopen(from.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  std::fesetenv(&arithmetic);  // of who links with -ffast-math a constructor flushes subnormal numbers to zero
  const auto entry = handle ? reinterpret_cast<Entry>(dlsym(handle, "mortise_plugin_v0")) : nullptr;
  if (!entry) refuse_unloaded(info, dlerror(), from.path);
  register_code_of(info.schema.id, handle);
  return *libraries().emplace_back(new Library{std::move(image), entry});
}

int line_of_difference(std::string_view a, std::string_view b) {
  return 1 + static_cast<int>(std::count(a.begin(), std::ranges::mismatch(a, b).in1, '\n'));
}

const mortise_plugin* shake_hands(const PluginInfo& info, Entry entry) {
  const PluginScope scope(info.schema.id, "mortise_plugin_v0");
  const mortise_plugin* const plugin = entry();
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

std::string loader_text(std::string text, const std::string& path, const std::string& library) {
  if (path != library)
    for (size_t at = text.find(path); at != text.npos; at = text.find(path, at + library.size()))
      text.replace(at, path.size(), library);
  return escape_control(text);
}

void refuse_unloaded(const PluginInfo& info, const std::string& said, const std::string& path) {
  const std::string text = loader_text(said, path, info.library);
  if (text.ends_with("failed to map segment from shared object") || text.ends_with("Cannot allocate memory"))
    throw Failure(trouble(kExitUnavailable, "out_of_memory", "no memory for the library of " + info.schema.id,
                          info.library, "end other programs, or raise the limit: ulimit -v, or that of the container"));
  std::vector<std::string> fixes = {kRebuild};
  if (text.find("undefined symbol") != text.npos)
    fixes.insert(fixes.begin(),
                 "link the library that has it: -lm, or LINKS m in mortise_add_plugin(), for mathematics");
  refuse(info, "load_failed", info.schema.id + " does not load: " + text, std::move(fixes));
}

ProbedLibraries probe_ahead(const std::vector<const PluginInfo*>& plugins, const std::string& helper) try {
  ProbedLibraries read;
  std::vector<LoadFrom> from;
  for (const PluginInfo* info : plugins) {
    if (!is_probed(*info, helper) || asked_for_files()) continue;
    LibraryImage image(*info);
    if (check_elf(*info, image.bytes()) || !image.not_from_memory().empty() || find_loaded(image)) continue;
    check_abi(*info, wanted_abi(*info), {0, 0});
    from.push_back({image.path(), image.file()});
    read.emplace(info->schema.id, std::move(image));
  }
  if (from.empty() || !load_together(from, helper)) return {};
  return read;
} catch (const Failure&) {
  return {};
}

LoadedPlugin load_plugin(const PluginInfo& info, const std::string& helper, ProbedLibraries& probed) {
  const auto ahead = probed.extract(info.schema.id);
  LibraryImage image = ahead ? std::move(ahead.mapped()) : LibraryImage(info);
  const bool needs_its_folder = check_elf(info, image.bytes());
  check_abi(info, wanted_abi(info), {0, 0});
  if (const Library* known = find_loaded(image)) return {shake_hands(info, known->entry), known->image.bytes()};
  const LoadFrom from = where_from(info, image, needs_its_folder);
  if (!ahead && is_probed(info, helper)) probe(info, from, helper);
  const Library& library = open(info, std::move(image), from);
  return {shake_hands(info, library.entry), library.image.bytes()};
}

}  // namespace mortise
