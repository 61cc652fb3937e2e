// The ends of a process that say nothing by themselves: a signal, and an exit() in a plugin; watchdog.hpp has the call
// that never comes back. Each is said in one line that names the plugin, the point and the way to go on.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/diagnostic.hpp"
#include "core/plugin/calls.hpp"

namespace mortise {

// Takes SIGSEGV, SIGABRT, SIGFPE, SIGBUS and SIGILL where nobody did yet, and the end of the process. A signal keeps
// its default action, after the line. An exit from inside a call ends with 71. Called again after a library was loaded:
// at an exit what was registered last runs first, and so nothing of the library is destroyed before.
void guard_process();
// Gives back the signals that guard_process() took: another copy of this code, in a library, guards from now on.
void release_signals();
// At the end of the process, what was registered for it until now does not run; what is registered later does.
void leave_out_exit_handlers_so_far();

// Ends the process where nothing can be thrown or destroyed any more, with an error that is told with what is known of
// the run.
[[noreturn]] void end_at_once(const Diagnostic& d);
// Ends it with what was printed, and destroys nothing.
[[noreturn]] void leave_process(int exit);

// How errors of this module are printed; by default as text to stderr. `json`: the line of a signal is an object.
void set_guard_output(std::function<void(const Diagnostic&)> print, bool json);

// The run that is under way in this process, for what is said about it: its directory, and the command that goes on
// with it. `ended` is told the exit code of an end that comes from a plugin: status.json must not say for ever that it
// is running.
class RunUnderWay {
 public:
  RunUnderWay(const std::string& dir, const std::string& resume, std::function<void(int)> ended);
  ~RunUnderWay();
  RunUnderWay(const RunUnderWay&) = delete;
  RunUnderWay& operator=(const RunUnderWay&) = delete;
  static void set_step(int64_t step);  // the one that is next, or under way
};

// Where the code of a loaded plugin lies: a thread that a plugin made itself is in no call.
void register_code(const std::string& plugin, const void* begin, size_t bytes);

// A plugin failed where nothing can be thrown any more, in `destroy`: printed, and exit 0 becomes 71.
void report_late_failure(const Diagnostic& d);
bool any_late_failure();

}  // namespace mortise
