// How threads of LibTorch's OpenMP wait for one another. The library reads $OMP_WAIT_POLICY once, when it is loaded.
#pragma once
#include <string>

namespace mortise::cli {

// That this process may have: taskset and a container give it some of all. 0: it cannot be said.
int processors_here() noexcept;

// "passive", or "" where spinning as the library does by default is faster: many processors, and nothing else runs.
// `loadavg` as /proc/loadavg has it. Usable before any library has begun.
const char* policy_for(int processors, const char* loadavg) noexcept;
// The same for this machine, now.
const char* policy_here() noexcept;

// Sees to it that threads wait as `policy` says, "passive" or "active": where this process began otherwise, it begins
// anew with the same arguments, so nothing may have been written or printed yet. Returns if nothing is to be done.
void begin_anew_waiting(const std::string& policy);

}  // namespace mortise::cli
