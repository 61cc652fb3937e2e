// mortise-probe NONCE FILE...: loads plugins in a process of its own, so that a constructor that crashes, hangs or
// exits takes nothing with it. Answers with one line, `mortise-probe NONCE WORD TEXT`; WORD is ok when all are sound,
// else load or descriptor for the first that is not. The nonce tells our answer from what a plugin prints. Starts in
// about 1 ms: it needs libc alone, and so no streams here.
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

void load(const char* file, const char* nonce) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) answer(nonce, "load", dlerror());
  const auto entry = reinterpret_cast<decltype(&mortise_plugin_v0)>(dlsym(library, "mortise_plugin_v0"));
  if (!entry) answer(nonce, "load", dlerror());
  const mortise_plugin* plugin = entry();
  if (const char* fault = mortise::descriptor_fault(plugin)) answer(nonce, "descriptor", fault);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("mortise-probe is started by mortise, with a nonce and files\n", stderr);
    return 64;
  }
  for (int i = 2; i < argc; ++i) load(argv[i], argv[1]);
  answer(argv[1], "ok", "");
}
