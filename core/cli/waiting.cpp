// How threads of LibTorch's OpenMP wait for one another. By default they spin for milliseconds, which on a machine that
// does anything else besides makes each parallel loop wait for a whole time slice: the quickstart ran at 0.6-1.3k tok/s
// beside one compiler and runs at 23k with this; alone it is the same 24k either way (2 cores). The library reads the
// variable when it is loaded, so it must be set before any shared library begins: .preinit_array. What the manifest
// says of it comes later, and begins the program anew: wait_policy.hpp.
#include <cstdlib>

#include "core/cli/wait_policy.hpp"

namespace {

void choose_policy(int, char**, char**) {
  const char* const policy = mortise::cli::policy_here();
  if (*policy) setenv("OMP_WAIT_POLICY", policy, /*overwrite=*/0);  // who set it knows better
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = choose_policy;

}  // namespace
