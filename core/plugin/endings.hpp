// What a signal, an exit and a hang share: which run is under way, and how a process ends because of a plugin. Of this
// room alone.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/diagnostic.hpp"
#include "core/plugin/calls.hpp"

namespace mortise {

// Of the run that is under way. A handler reads it: plain memory that exists from the beginning.
struct RunTexts {
  std::atomic<bool> active{false};
  std::atomic<int64_t> step{0};
  char latest[PATH_MAX];      // the link that names the last checkpoint
  char resume[2 * PATH_MAX];  // "mortise resume runs/gpt2"
};
inline RunTexts run_texts;
inline std::atomic<pid_t> guarded_process{0};
inline std::atomic<bool> json_lines{false};
inline std::atomic<pid_t> ending_thread{0};  // which is in end_process()

// The step that the link `checkpoints/latest` names; -1 without one. Signal-safe.
int64_t last_checkpoint();
void copy_text(char* to, size_t room, std::string_view text);  // cut to the room, with a NUL

void take_signals();  // of guard_process()

// "`forward` at h.3"
std::string describe(const PluginCall& call);
// With what is known of the run.
Diagnostic with_run(Diagnostic d);
// An error because of a plugin, with the same.
Diagnostic ending(std::string code, std::string message, std::string plugin);
// Prints it, tells who trains, and ends with its exit.
[[noreturn]] void end_process(const Diagnostic& d);

}  // namespace mortise
