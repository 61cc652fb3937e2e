// The failure behind a failure: a plugin calls another one through the host, gets a status and fails for it itself. The
// status has no text; so that the reason is not lost, the host puts it behind what the plugin says.
#pragma once
#include <string>

namespace mortise {

// "it says this", or "it says this: test.other: why that failed" before the end of its first line. That nothing was
// found (MORTISE_E_NOT_FOUND) is an answer and no failure.
std::string with_cause(std::string said);

}  // namespace mortise
