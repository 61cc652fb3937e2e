// What a library's own bytes say against what its plugin.toml says: machine, exports, imports, glibc.
#include <cxxabi.h>
#include <elf.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/base/text.hpp"
#include "core/plugin/load.hpp"
#include "core/plugin/refuse.hpp"
#include "formats/elf/elf.hpp"

namespace mortise {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kThisMachine = EM_AARCH64;
#endif

constexpr std::string_view kEntry = "mortise_plugin_v0", kEntryStem = "mortise_plugin_";

// libstdc++ may also be linked into the plugin; shared, it is the host's own, and no C++ type crosses the edge either
// way.
const std::vector<std::string> kPortable = {
    "libc.so.6",      "libm.so.6",     "libdl.so.2",     "libpthread.so.0", "librt.so.1",
    "ld-linux*.so.*", "libgcc_s.so.1", "libstdc++.so.6", "libcudart.so.*",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    "lib*san.so.*",  // of a build for testing, host and plugins alike
#endif
};
const std::vector<std::string> kLibTorch = {"libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so",
                                            "libc10_cuda.so"};

bool matches_any(std::string_view name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_match(pattern, name); });
}

std::string machine_name(uint16_t machine) {
  if (machine == EM_X86_64) return "x86-64";
  if (machine == EM_AARCH64) return "AArch64";
  return "another machine (ELF number " + std::to_string(machine) + ")";
}

ElfFile read(const PluginInfo& info, std::string_view bytes) {
  try {
    return read_elf(bytes);
  } catch (const ElfError& e) {
    refuse(info, "not_elf", info.schema.id + " is no whole shared library: " + e.what(),
           {"build it again, or copy it again from where it came"});
  }
}

void check_exports(const PluginInfo& info, const ElfFile& file) {
  const std::string &id = info.schema.id, entry(kEntry);
  std::vector<std::string> entries, others;
  for (const std::string& name : file.exported) (name.starts_with(kEntryStem) ? entries : others).push_back(name);
  if (entries.empty())
    refuse(info, "not_a_plugin", id + " does not export `" + entry + "`",
           {"define it as <mortise/abi.h> declares it, with MORTISE_EXPORT"});
  if (std::count(entries.begin(), entries.end(), entry) == 0)
    refuse(info, "built_for_another", id + " exports `" + entries[0] + "`; this host asks for `" + entry + "`",
           {kRebuild});
  std::erase(entries, entry);
  others.insert(others.begin(), entries.begin(), entries.end());
  if (others.empty()) return;
  const std::string more = others.size() > 3 ? " and " + std::to_string(others.size() - 3) + " more" : "";
  others.resize(std::min<size_t>(others.size(), 3));
  refuse(info, "exports_too_much", id + " exports more than `" + entry + "`: `" + join(others, "`, `") + "`" + more,
         {"link it with a version script, as mortise_add_plugin() does: { global: " + entry + "; local: *; };"});
}

// The C++ name behind a mangled one if it speaks of a type or function of LibTorch, else "".
std::string libtorch_name(const std::string& mangled) {
  if (!mangled.starts_with("_Z")) return "";
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr),
                                                    std::free);
  if (!text) return "";
  const std::string name = text.get();
  for (const std::string_view space : {"c10::", "at::", "torch::", "caffe2::"})
    for (size_t at = name.find(space); at != name.npos; at = name.find(space, at + 1)) {
      const char before = at == 0 ? ' ' : name[at - 1];
      if (!std::isalnum(static_cast<unsigned char>(before)) && before != '_' && before != ':') return name;
    }
  return "";
}

void check_imports(const PluginInfo& info, const ElfFile& file) {
  const std::string& id = info.schema.id;
  const bool portable = info.tier != "native";
  std::vector<std::string> refused;
  bool torch = false;
  for (const std::string& library : file.needed) {
    const bool of_torch = matches_any(library, kLibTorch);
    if (matches_any(library, kPortable) || matches_any(library, info.links) || (of_torch && !portable)) continue;
    refused.push_back(library);
    torch |= of_torch;
  }
  const std::string native =
      "tier = \"native\" in its plugin.toml pins it to one build of LibTorch; the C tables of <mortise/ops.h> do not";
  if (!refused.empty()) {
    const std::string names = join(refused, ", ");
    refuse(info, "imports_not_allowed", id + " needs " + names + ", which a " + info.tier + " plugin may not",
           {torch ? native
                  : "[links] allow = [\"" + join(refused, "\", \"") + "\"] in its plugin.toml, or link it statically"});
  }
  if (!portable) return;
  for (const ElfSymbol& symbol : file.undefined) {
    const std::string name = libtorch_name(symbol.name);
    if (!name.empty())
      refuse(info, "imports_not_allowed", id + " calls LibTorch's `" + name + "`, which a portable plugin may not",
             {native});
  }
}

// "GLIBC_2.34" as 2034; 0 for what is no such version.
int glibc_number(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "GLIBC_%d.%d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

void check_glibc(const PluginInfo& info, const ElfFile& file) {
  const std::string here = gnu_get_libc_version();
  const auto newest = std::ranges::max_element(file.versions, {}, glibc_number);
  if (newest == file.versions.end() || glibc_number(*newest) <= glibc_number("GLIBC_" + here)) return;
  const auto symbol = std::ranges::find(file.undefined, *newest, &ElfSymbol::version);
  const std::string whose = symbol == file.undefined.end() ? "" : " (for `" + symbol->name + "`)";
  refuse(info, "glibc_too_old", info.schema.id + " needs glibc " + newest->substr(6) + whose + "; this is " + here,
         {"build it here, or on the oldest system that it is to run on: " + kBuildIt});
}

}  // namespace

bool check_elf(const PluginInfo& info, std::string_view bytes) {
  const ElfFile file = read(info, bytes);
  if (file.machine != kThisMachine)
    refuse(info, "wrong_machine",
           info.schema.id + " is built for " + machine_name(file.machine) + "; this is " + machine_name(kThisMachine),
           {"build it here: " + kBuildIt});
  if (file.type != ET_DYN)
    refuse(info, "not_elf", info.schema.id + " is an object file or a program, no shared library",
           {"build it as mortise_add_plugin() does, with -shared: " + kBuildIt});
  check_exports(info, file);
  check_imports(info, file);
  check_glibc(info, file);
  return file.run_path.find("$ORIGIN") != file.run_path.npos || file.run_path.find("${ORIGIN}") != file.run_path.npos;
}

}  // namespace mortise
