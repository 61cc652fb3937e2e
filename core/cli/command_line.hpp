// From argv to an exit code: which verb, which flags, help, and how what is thrown is told.
#pragma once
#include <functional>
#include <string>

#include "core/cli/common.hpp"

namespace mortise::cli {

// Does what a verb is for; `help` and the flags that every verb has are seen to before.
using RunVerb = std::function<int(const std::string& verb, const Arguments& args)>;
int command_line(int argc, char** argv, const RunVerb& run);

// What a verb does, if it computes nothing and so needs no LibTorch; else NULL. The program and the library share
// these.
using Work = int (*)(const Arguments&);
Work light_work(const std::string& verb);

}  // namespace mortise::cli
