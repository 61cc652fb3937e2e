// What Mortise says when something is wrong: one value with what is the case, where, the effect and the fix; and a
// report that holds all of them until they are printed together. Rendering follows the form of an error line for people
// and of an object for --json.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mortise {

enum class Level { kWarning, kError };

// The exit codes of the command line.
enum Exit : int {
  kExitOk = 0,
  kExitNo = 1,
  kExitUsage = 64,
  kExitData = 65,
  kExitUnavailable = 69,
  kExitBug = 70,
  kExitPlugin = 71,
  kExitExists = 73,
  kExitIo = 74,
  kExitResumable = 75,
  kExitGuard = 76,
  kExitInterrupted = 130,
};

// A place in a manifest. `file` is as the user would type it; "command line" has no line. `key` is dotted, for --json.
struct Position {
  std::string file;
  int line = 0, column = 0;
  std::string key;
  std::string text() const;   // "my.toml:6:1", "command line: --set a.b=1"
  std::string typed() const;  // "--set a.b=1"; "" of what is in a file
  explicit operator bool() const { return !file.empty(); }
};

struct Diagnostic {
  Level level = Level::kError;
  std::string code;                 // a slug without a dot: unknown_key
  std::string message;              // one line, names in backticks
  std::vector<Position> positions;  // the first after "-->", others joined by "and"
  std::string beside;               // to the right of the position
  std::string source_line;          // the line of the file, shown under the position when it helps
  std::vector<std::string> lines;   // a small table under the message
  std::string at;                   // plugin, point, step, path
  std::string holds;                // what an area always knows (memory)
  std::string effect;
  std::vector<std::string> fixes;  // lines after "fix:", ready to paste
  std::string see;
  std::string plugin;
  int exit = kExitUsage;
  // Names that the message speaks of, for code that goes on from it: nobody reads them out of the text. An id, a table,
  // a point or a key; the one that was meant instead.
  std::string about, meant;
  // The edit at the first position that the first fix means; "" if it is no plain replacement.
  std::string replace, with;
};

// An error at one place, with one fix.
Diagnostic mistake(std::string code, std::string message, Position at = {}, std::string fix = {});
// What no manifest is to blame for: a file, a disk, a plugin.
Diagnostic trouble(int exit, std::string code, std::string message, std::string at = {}, std::string fix = {});
// A fix: `written`, and what has to go from the command line for it: "--use ID in place of --without ID".
std::string in_place_of(std::string written, std::vector<std::string> gone);
// The same, and the run goes on.
Diagnostic as_warning(Diagnostic d, std::string effect = {});

class Report {
 public:
  void add(Diagnostic d);
  bool has_errors() const { return errors_ > 0; }
  int errors() const { return errors_; }
  int exit_code() const;  // of the first error; 0 without one
  const std::vector<Diagnostic>& all() const { return all_; }
  // At most twenty errors, then a count; `closing` ("nothing was started.") ends the line with the number of errors.
  void print(std::ostream& out, bool colour, std::string_view closing) const;
  void print_json(std::ostream& out) const;  // one object a line

 private:
  std::vector<Diagnostic> all_;
  int errors_ = 0;
};

// Thrown inside core/ where going on makes no sense; never across the ABI.
class Failure {
 public:
  explicit Failure(Diagnostic d) : diagnostic(std::move(d)) {}
  Diagnostic diagnostic;
};

void print(std::ostream& out, const Diagnostic& d, bool colour);
void print_json(std::ostream& out, const Diagnostic& d);

}  // namespace mortise
