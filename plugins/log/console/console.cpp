// What training prints: one line a record on standard output, flushed, so that a pipe sees it at once. Columns may be
// missing; then their clause is. On a terminal, the steps in between show as one more line on standard error, redrawn
// in place.
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char buffer[64];
  va_list args;
  va_start(args, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, args);
  va_end(args);
  return buffer;
}

// ---- numbers as people read them ----

// 3.412, and 1.2e-05 where `digits` after the point would say too little.
std::string plain(double x, int digits) {
  if (std::isnan(x)) return "nan";
  const double size = std::abs(x);
  const bool fits = x == 0 || std::isinf(x) || (size >= std::pow(10, -digits) && size < 1e4);
  return fits ? format("%.*f", digits, x) : format("%.1e", x);
}

// 412, 9.8k, 412k, 3.2M
std::string short_count(double n) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (!(n >= 999.5)) break;
    n /= 1000;
    unit = next;
  }
  return format(n < 9.95 ? "%.1f" : "%.0f", n) + unit;
}

// 4.1s, 31s, 12m04s, 6h44m, 2d03h; what is only guessed has no tenths.
std::string duration(double seconds, bool tenths = true) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (tenths && seconds < 9.95) return format("%.1fs", seconds);
  const auto s = static_cast<long long>(std::llround(std::min(seconds, 1e15)));
  if (s < 60) return format("%llds", s);
  if (s < 3600) return format("%lldm%02llds", s / 60, s % 60);
  if (s < 86400) return format("%lldh%02lldm", s / 3600, s / 60 % 60);
  return format("%lldd%02lldh", s / 86400, s / 3600 % 24);
}

struct SizeUnit {
  double bytes;
  const char* name;
};
SizeUnit unit_of(double bytes) {
  if (bytes >= 1 << 30) return {1 << 30, "GiB"};
  return bytes >= 1 << 20 ? SizeUnit{1 << 20, "MiB"} : SizeUnit{1 << 10, "KiB"};
}
std::string in_unit(double bytes, SizeUnit unit) {
  return format(bytes / unit.bytes < 9.95 ? "%.1f" : "%.0f", bytes / unit.bytes);
}
std::string byte_size(double bytes) { return in_unit(bytes, unit_of(bytes)) + " " + unit_of(bytes).name; }

// ---- terminals ----

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// One whose lines can be drawn again.
bool is_terminal(int fd) { return isatty(fd) && !variable("TERM").empty() && variable("TERM") != "dumb"; }

// As the program's own errors are: --color sets one of the two variables.
bool is_coloured(int fd) {
  if (!variable("NO_COLOR").empty()) return false;
  const std::string_view force = variable("CLICOLOR_FORCE");
  return (!force.empty() && force != "0") || is_terminal(fd);
}

// Whoever reads it may print on our terminal, as tee does.
bool is_pipe(int fd) {
  struct stat about{};
  return fstat(fd, &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode));
}

size_t width_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Of a job in the background the terminal is somebody else's.
bool is_in_background(int fd) {
  const pid_t group = tcgetpgrp(fd);
  return group > 0 && group != getpgrp();
}

// ---- lines ----

enum class Look { kPlain, kDim, kWarning };

// A line whose parts look different; in words it says the same without colour.
class Line {
 public:
  Line() = default;
  // "step    ": what a line is about stands in eight columns.
  explicit Line(std::string_view heading, Look look = Look::kDim) {
    std::string s(heading);
    add(s.append(s.size() < 8 ? 8 - s.size() : 1, ' '), look);
  }
  // Text of several lines hangs under its first. What a terminal would obey, or is no UTF-8, is shown as \x1b.
  Line& add(std::string_view text, Look look = Look::kPlain) {
    std::string& s = parts_.emplace_back(Part{{}, look}).text;
    while (!text.empty()) {
      const size_t length = utf8_length(text);
      const auto first = static_cast<unsigned char>(text[0]);
      const bool is_c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
      const bool control = is_c1 || (length == 1 && (first < 0x20 || first == 0x7F) && first != '\t');
      if (first == '\n') {
        s += "\n        ";
      } else if (length == 0 || control) {
        for (const char byte : text.substr(0, std::max<size_t>(length, 1)))
          s += format("\\x%02x", static_cast<unsigned char>(byte));
      } else {
        s += text.substr(0, length);
      }
      text.remove_prefix(std::max<size_t>(length, 1));
    }
    return *this;
  }
  Line& label(std::string_view text) { return add(text, Look::kDim); }
  Line& add(const Line& other) {
    parts_.insert(parts_.end(), other.parts_.begin(), other.parts_.end());
    return *this;
  }

  // In characters.
  size_t width() const {
    size_t all = 0;
    for (const Part& part : parts_) {
      size_t room = std::string::npos;
      clipped(part.text, room);
      all += std::string::npos - room;
    }
    return all;
  }

  // At most `width` characters of it.
  std::string text(bool coloured, size_t width = std::string::npos) const {
    std::string all;
    for (const Part& part : parts_) {
      const std::string_view seen = clipped(part.text, width);
      const bool plain = !coloured || part.look == Look::kPlain || seen.empty();
      if (!plain) all += part.look == Look::kDim ? "\x1b[2m" : "\x1b[33m";
      all += seen;
      if (!plain) all += "\x1b[0m";
    }
    return all;
  }

 private:
  struct Part {
    std::string text;
    Look look;
  };
  // The characters of `text` that still fit into `width`, which gets smaller.
  static std::string_view clipped(std::string_view text, size_t& width) {
    size_t end = 0;
    for (; end < text.size() && width > 0; --width) end += std::max<size_t>(utf8_length(text.substr(end)), 1);
    return text.substr(0, end);
  }
  std::vector<Part> parts_;
};

std::string step_of(const Columns& c) {
  std::string s = std::to_string(c.integer("step"));
  if (c.has("of")) s += "/" + std::to_string(c.integer("of"));
  return s;
}

std::string skipped(const Columns& c) {
  if (const std::string_view why = c.text("skipped_reason"); !why.empty()) return "  skipped: " + std::string(why);
  const double norm = c.number("grad_norm");
  if (c.has("grad_norm") && std::isfinite(norm)) return "  skipped: a plugin voted against it";
  std::string s = "  skipped: gradient";
  if (const std::string_view name = c.text("skipped_parameter"); !name.empty()) s += " of " + std::string(name);
  s += std::isnan(norm) ? " is nan" : std::isinf(norm) ? " is inf" : " is not finite";
  if (c.has("scale")) s += ", scale " + plain(c.number("scale"), 0);
  if (c.has("skipped_in_a_row") && c.has("stop_after"))
    s += " (" + with_commas(c.integer("skipped_in_a_row")) + " of " + with_commas(c.integer("stop_after")) +
         " in a row before stopping)";
  return s;
}

// What is measured over an interval of steps, not in one.
struct Interval {
  std::optional<double> per_s;
  bool tokens = false;
  double flop_per_s = 0, mfu = 0;
  std::string memory, slowest;
  double left_s = 0;
};

std::string memory(const Columns& c) {
  if (!c.has("memory_bytes")) return "";
  const double used = c.number("memory_bytes"), total = c.number("memory_total_bytes");
  if (!(total > 0)) return byte_size(used);
  return in_unit(used, unit_of(total)) + "/" + in_unit(total, unit_of(total)) + " " + unit_of(total).name;
}

constexpr double kMuch = 0.05;  // of the time, for nothing

// For whom the other ranks wait much. `hosts`: on how many they are.
std::string slowest(const Columns& c, int64_t hosts) {
  if (!(c.number("slowest_lag_share") > kMuch)) return "";
  std::string s = "rank " + std::to_string(c.integer("slowest_rank"));
  if (hosts > 1) s += " (host " + std::string(c.text("slowest_host")) + ")";
  const double lag_s = c.number("slowest_lag_s");
  return s + " is " + (lag_s < 0.9995 ? format("%.*f ms", lag_s < 0.00995, 1000 * lag_s) : duration(lag_s)) + " behind";
}

// A record that is due says it itself.
Interval interval_of(const Columns& c) {
  Interval i;
  i.tokens = c.has("throughput_unit") ? c.text("throughput_unit") == "tok" : c.has("tokens_per_s");
  const char* column = i.tokens ? "tokens_per_s" : "samples_per_s";
  if (c.has(column)) i.per_s = c.number(column);
  i.flop_per_s = c.number("flop_per_s");
  i.mfu = c.number("mfu");
  i.memory = memory(c);
  i.left_s = c.number("left_s");
  return i;
}

// A piece of a step's line. Where there is no room for all, those of the lowest rank are left out first.
struct Clause {
  int rank;
  Line line;
};

std::vector<Clause> clauses_of(const Columns& c, const Interval& interval) {
  std::vector<Clause> all;
  const auto say = [&](int rank) -> Line& { return all.emplace_back(Clause{rank, {}}).line; };
  if (c.has("loss")) say(6).label("  loss ").add(plain(c.number("loss"), 3));
  if (c.has("lr")) say(2).label("  lr ").add(format("%.1e", c.number("lr")));
  if (c.has("grad_norm")) say(3).label("  grad ").add(plain(c.number("grad_norm"), 2));
  if (interval.per_s) say(4).add("  " + short_count(*interval.per_s)).label(interval.tokens ? " tok/s" : " samples/s");
  if (interval.mfu > 0)
    say(-1).add("  " + short_count(interval.flop_per_s / 1e12)).label(format(" TFLOP/s (%.0f%%)", 100 * interval.mfu));
  if (!interval.memory.empty()) say(0).label("  mem ").add(interval.memory);
  // A host that waits while the device has work enough costs nothing.
  const double idle = c.has("idle_share") ? c.number("idle_share") : 1;
  if (const double data = std::min(c.number("data_wait_share"), idle); data > kMuch)
    say(1).add(format("  waiting for data %.0f%%", 100 * data), Look::kWarning);
  else if (c.has("idle_share") && idle > kMuch) say(1).add(format("  device idle %.0f%%", 100 * idle), Look::kWarning);
  if (!interval.slowest.empty()) say(1).add("  " + interval.slowest, Look::kWarning);
  if (interval.left_s >= 0.5) say(5).add("  " + duration(interval.left_s, false)).label(" left");
  return all;
}

Line step_line(const Columns& c, const Interval& interval, size_t width) {
  Line line("step");
  line.add(step_of(c));
  if (c.integer("skipped") != 0) return line.add(skipped(c), Look::kWarning);
  std::vector<Clause> clauses = clauses_of(c, interval);
  size_t wanted = line.width();
  for (const Clause& each : clauses) wanted += each.line.width();
  while (wanted > width && clauses.size() > 1) {
    const auto least = std::ranges::min_element(clauses, {}, &Clause::rank);
    wanted -= least->line.width();
    clauses.erase(least);
  }
  for (const Clause& each : clauses) line.add(each.line);
  return line;
}

Line eval_line(const Columns& c) {
  Line line("eval");
  line.add(step_of(c));
  std::string measured;
  for (const mortise_column& column : c.all())
    if (view(column.name).starts_with("eval."))
      line.label("  " + std::string(view(column.name)) + " ").add(plain(c.number(view(column.name)), 3));
  for (const char* unit : {"tokens", "samples"})
    if (measured.empty() && c.integer(unit) > 0) measured = with_commas(c.integer(unit)) + " " + unit;
  if (c.has("seconds")) measured += (measured.empty() ? "" : ", ") + duration(c.number("seconds"));
  if (!measured.empty()) line.label("  (" + measured + ")");
  return c.integer("best") != 0 ? line.add("   best so far, kept") : line;
}

Line saved_line(const Columns& c) {
  Line line("saved");
  line.add(format("%-9lld", static_cast<long long>(c.integer("step"))));
  if (c.has("bytes")) line.add("  " + byte_size(c.number("bytes")));
  if (c.has("seconds")) line.add(" in " + duration(c.number("seconds")));
  if (c.integer("background") != 0) line.add(", in the background");
  if (c.integer("background") != 0 && c.number("held_seconds") >= 0.1)
    line.add("; training waited " + duration(c.number("held_seconds")));
  return c.text("path").empty() ? line : line.add("  " + std::string(c.text("path")));
}

Line end_line(const Columns& c) {
  const int64_t code = c.integer("exit");
  Line line = code == 0 ? Line("done") : Line("stopped", Look::kWarning);
  line.add(with_commas(c.integer("steps")) + (c.integer("steps") == 1 ? " step" : " steps"));
  if (const int64_t here = c.integer("steps_here"); c.has("steps_here") && here != c.integer("steps"))
    line.add(here > 0 ? ", the last " + with_commas(here) : ", no new one");
  if (c.has("seconds")) line.add(" in " + duration(c.number("seconds")));
  if (c.integer("steps") > 0 && c.has("loss_first") && c.has("loss_last"))
    line.label("  loss ").add(plain(c.number("loss_first"), 2) + " -> " + plain(c.number("loss_last"), 2));
  if (!c.text("dir").empty()) line.add("  " + std::string(c.text("dir")));
  if (!c.text("reason").empty()) line.add("  " + std::string(c.text("reason")));
  return code == 0 ? line : line.add(" · exit " + std::to_string(code));
}

// ---- the steps in between ----

// Their records lack what is measured over an interval. The live line has it from the last record that was due and from
// our own clock.
class Meanwhile {
 public:
  Interval take(const Columns& c) {
    const Mark now{Clock::now(), c.integer("step"), c.integer("tokens"), c.integer("samples")};
    const auto left_steps = static_cast<double>(c.integer("of") - now.step);
    const bool due = c.integer("due", 1) != 0;
    Interval i = interval_of(c);
    if (due) {
      known_ = i;
      left_each_ = left_steps > 0 ? i.left_s / left_steps : 0;
    } else {
      i.memory = known_.memory;
      i.tokens = known_.per_s ? known_.tokens : now.tokens > 0;
      const double seconds = since_ ? std::chrono::duration<double>(now.time - since_->time).count() : 0;
      if (seconds > 0 && now.step > since_->step) {
        if (const int64_t n = i.tokens ? now.tokens - since_->tokens : now.samples - since_->samples; n > 0)
          i.per_s = static_cast<double>(n) / seconds;
        i.left_s = left_steps * (left_each_ > 0 ? left_each_ : seconds / static_cast<double>(now.step - since_->step));
      }
    }
    if (due || !since_) since_ = now;
    return i;
  }
  // Something else than steps took time.
  void pause() { since_.reset(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point time;
    int64_t step, tokens, samples;
  };
  std::optional<Mark> since_;
  Interval known_;
  double left_each_ = 0;  // seconds a step
};

class Console {
 public:
  ~Console() { erase(); }

  void listen(const mortise_event* event) {
    if (!event->record) return erase();  // the run ended in an error, which the program says next
    const Columns columns(*event->record);
    const std::string_view kind = columns.kind();
    if (kind == "step") return step(columns);
    meanwhile_.pause();
    if (kind == "run") {
      if (!std::exchange(begun_, true)) begin(columns);
    } else if (kind == "end") {
      if (!std::exchange(ended_, true)) end(columns);
    } else if (kind == "eval") {
      print(eval_line(columns));
    } else if (kind == "saved") {
      print(saved_line(columns));
    } else if (kind == "sample") {
      print(Line("sample").add(step_of(columns) + "\n" + std::string(columns.text("text"))));
    } else if (kind == "note") {
      const bool warning = columns.text("level") == "warning";
      const Line line = warning ? Line("warning", Look::kWarning) : Line("note");
      print(Line(line).add(columns.text("text")), warning ? stderr : stdout);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void begin(const Columns& columns) {
    hosts_ = columns.integer("hosts", 1);
    for (const mortise_column& c : columns.all())
      for (const char* row : {"run", "model", "weights", "data", "device", "batch"})
        if (view(c.name) == row && c.value.tag == MORTISE_TEXT) print(Line(row).add(view(c.value.v.s)));
  }

  void step(const Columns& c) {
    Interval interval = meanwhile_.take(c);
    interval.slowest = slowest(c, hosts_);
    const bool scrolls = c.integer("due", 1) != 0 || c.integer("skipped") != 0;
    if (scrolls) print(step_line(c, interval, lines_.terminal ? width_of(STDOUT_FILENO) : std::string::npos));
    if (!scrolls || !lines_shown_) draw(c, interval);
  }

  void end(const Columns& c) {
    erase();
    print(end_line(c));
    if (!c.text("profile").empty()) print(Line("profile").add(c.text("profile")));
    if (!c.text("next").empty()) print(Line("next").add(c.text("next")));
  }

  // A closed pipe is not the run's trouble: what cannot be printed is lost.
  static void write(std::FILE* to, const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), to);
    std::fflush(to);
  }
  void print(const Line& line, std::FILE* to = stdout) {
    if (lines_shown_ || to == stderr) {
      erase();
      drawn_ = Clock::now();  // it comes back a little later: what reads the pipe prints first
    }
    write(to, line.text(to == stdout ? lines_.coloured : live_.coloured) + '\n');
  }

  // At most ten times a second. One column less than there are: in the last one some terminals wrap.
  void draw(const Columns& c, const Interval& interval) {
    if (!live_.terminal || Clock::now() - drawn_ < std::chrono::milliseconds(100) || is_in_background(STDERR_FILENO))
      return;
    const size_t width = width_of(STDERR_FILENO) - 1;
    write(stderr, "\r" + step_line(c, interval, width).text(live_.coloured, width) + "\x1b[K");
    drawn_ = Clock::now();
    shown_ = true;
  }
  void erase() {
    if (std::exchange(shown_, false)) write(stderr, "\r\x1b[K");
  }

  struct Stream {
    bool terminal, coloured;
    explicit Stream(int fd) : terminal(is_terminal(fd)), coloured(is_coloured(fd)) {}
  };
  const Stream lines_{STDOUT_FILENO}, live_{STDERR_FILENO};
  const bool lines_shown_ = lines_.terminal || is_pipe(STDOUT_FILENO);  // perhaps on the terminal of the live line
  Meanwhile meanwhile_;
  Clock::time_point drawn_{};
  bool shown_ = false;
  int64_t hosts_ = 1;
  bool begun_ = false, ended_ = false;  // "run" and "end" come as events of their own and may come as records too
};
}  // namespace

MORTISE_PLUGIN(Console, mortise::listen<&Console::listen>("record"), mortise::listen<&Console::listen>("run.begin"),
               mortise::listen<&Console::listen>("run.end"))
