// From argv to an exit code: which verb, which flags, help, and how what is thrown is told.
#pragma once
#include <functional>

#include "core/cli/common.hpp"

namespace mortise::cli {

// Does what a verb is for; `help` and the flags that every verb has are seen to before.
using RunVerb = std::function<int(const Verb& verb, const Arguments& args)>;
int command_line(int argc, char** argv, const RunVerb& run);

}  // namespace mortise::cli
