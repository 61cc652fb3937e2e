// The process's own log: stderr, and a file once there is a run directory. Any thread. What a user asked to see is no
// log: that goes to stdout.
#pragma once
#include <string>
#include <string_view>

namespace mortise {

// Numbered as MORTISE_LOG_… in sdk/include/mortise/config.h.
enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

void log(LogLevel level, std::string_view line);
void set_log_level(LogLevel least);  // quieter lines are dropped; kInfo at first
bool set_log_file(
    const std::string& path);  // appended to, each line with time and level; "" closes it; false: it cannot be opened

}  // namespace mortise
