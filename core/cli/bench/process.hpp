// One row of a bench in a process of its own.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace mortise::cli {

struct RowProcess {
  std::vector<std::string> words;  // the program, a path or a name on PATH, and what follows
  std::string output;              // the file that takes what it says
  std::string metrics;             // the file that it adds lines to, read as they come
};

struct RowEnd {
  int exit = 0;        // 128 + the signal that ended it
  bool asked = false;  // by the person who stopped the bench
  double seconds = 0;
};

// `line`: of `metrics`; `now`: some times a second. SIGINT and SIGTERM (signals.hpp) are passed on as SIGTERM, and who
// does not end then is killed; if this process dies, so does that one.
RowEnd run_row(const RowProcess& row, const std::function<void(std::string_view line)>& line,
               const std::function<void()>& now);

// Why a process of that exit failed: the first line of its output that is an error, else what can be said.
std::string why_it_failed(const std::string& output, int exit);

}  // namespace mortise::cli
