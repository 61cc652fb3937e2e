// A device that reported an error of its own, such as a kernel's assertion, does nothing more for this process. What
// lies on it must not even be given back: the process says what happened and ends.
#pragma once
#include <atomic>

namespace mortise {

inline std::atomic<bool> device_is_lost = false;

}  // namespace mortise
