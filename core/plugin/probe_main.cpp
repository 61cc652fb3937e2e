// mortise-probe FILE NONCE: loads a plugin in a process of its own, so that a constructor that crashes, hangs or exits
// takes nothing with it. Answers with one line, `mortise-probe NONCE WORD TEXT`; WORD is ok, load or descriptor. The
// nonce tells our answer from what a plugin prints. Starts in about 1 ms: it needs libc alone, and so no streams here.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

#include "core/plugin/descriptor.hpp"

namespace {

// Leaves without destructors: how a plugin ends is not asked.
[[noreturn]] void answer(const char* nonce, const char* word, const char* text) {
  std::printf("\nmortise-probe %s %s %s\n", nonce, word, text);
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("mortise-probe is started by mortise, with a file and a nonce\n", stderr);
    return 64;
  }
  const char *file = argv[1], *nonce = argv[2];
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) answer(nonce, "load", dlerror());
  const auto entry = reinterpret_cast<decltype(&mortise_plugin_v0)>(dlsym(library, "mortise_plugin_v0"));
  if (!entry) answer(nonce, "load", dlerror());
  const mortise_plugin* plugin = entry();
  if (const char* fault = mortise::descriptor_fault(plugin)) answer(nonce, "descriptor", fault);
  char abi[32];
  std::snprintf(abi, sizeof abi, "%u.%u", plugin->abi_major, plugin->abi_minor);
  answer(nonce, "ok", abi);
}
