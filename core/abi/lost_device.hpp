// A device that reported an error of its own, such as a kernel's assertion, does nothing more for this process. What
// lies on it must not even be given back: the process says what happened and ends. Whoever hears of it first, an
// operator, a kernel of a plugin, a loop of somebody's own, need not know what it is: after an error the device is
// asked (docs/adr/0037).
#pragma once
#include <functional>
#include <string>

#include "core/base/diagnostic.hpp"

namespace mortise {

// What the device that is open says is wrong with it for good; "" of one that is well. It waits for nothing.
inline std::function<std::string()> lost_device = [] { return std::string(); };

inline Diagnostic device_lost() {
  return trouble(kExitBug, "device_lost", lost_device(), "",
                 "which call it was: CUDA_LAUNCH_BLOCKING=1, exported; ids beyond a table of embeddings are a usual "
                 "cause");
}

}  // namespace mortise
