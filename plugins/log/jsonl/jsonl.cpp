// Every record as one line of JSON, appended to metrics.jsonl of the run directory. The form of a line is only ever
// added to.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

// ---- JSON ----

void append_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char first = text[0];
    if (length == 0) {
      out += "\\ufffd";  // no UTF-8
    } else if (first == '"' || first == '\\') {
      (out += '\\') += first;
    } else if (first == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(first) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", first);
      out += escape;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length ? length : 1);
  }
  out += '"';
}

// The shortest form that reads back as the same number; JSON has no word for nan and inf.
void append_number(std::string& out, double x) {
  char buffer[32] = "null";
  const char* const end = std::isfinite(x) ? std::to_chars(buffer, std::end(buffer), x).ptr : buffer + 4;
  out.append(buffer, static_cast<size_t>(end - buffer));
}

// False for what has no place in a line.
bool append_value(std::string& out, const mortise_value& v) {
  switch (v.tag) {
    case MORTISE_INT: out += std::to_string(v.v.i); return true;
    case MORTISE_LOGICAL: out += v.v.i ? "true" : "false"; return true;
    case MORTISE_FLOAT: append_number(out, v.v.f); return true;
    case MORTISE_TEXT: append_string(out, view(v.v.s)); return true;
    default: return false;
  }
}

void append_member(std::string& out, std::string_view name, const mortise_value& v) {
  std::string text;
  if (!append_value(text, v)) return;
  append_string(out += ',', name);
  (out += ':') += text;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts))};
}

// {"event":"step","step":1200,"of":5000,"time":"…","loss":3.412,…}
std::string line_of(const Columns& c) {
  std::string s = "{\"event\":";
  append_string(s, c.kind());
  for (const char* first : {"step", "of"})
    if (const mortise_value* v = c.find(first)) append_member(s, first, *v);
  append_member(s, "time", value(utc_now()));
  for (const mortise_column& column : c.all()) {
    const std::string_view name = view(column.name);
    if (name != "step" && name != "of" && name != "due" && name != "event" && name != "time")
      append_member(s, name, column.value);
  }
  return s + "}\n";
}

// Of a line of this file's own making; 0 without one.
int64_t step_of(std::string_view line) {
  constexpr std::string_view kBefore = "\"step\":";
  const size_t at = line.find(kBefore);
  int64_t step = 0;
  if (at != std::string_view::npos) std::from_chars(line.data() + at + kBefore.size(), line.data() + line.size(), step);
  return step;
}

// ---- the file ----

class Jsonl {
 public:
  // Its own, so that lines come from here alone where the program puts standard output elsewhere for all others.
  Jsonl() : stdout_(config::flag("stdout") ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : -1) {}
  Jsonl(const Jsonl&) = delete;
  Jsonl& operator=(const Jsonl&) = delete;
  ~Jsonl() {
    if (file_ >= 0) close(file_);
    if (stdout_ >= 0) close(stdout_);
  }

  void listen(const mortise_event* event) {
    if (!event->record) return;
    const Columns c(*event->record);
    const std::string_view kind = c.kind();
    if (kind == "run") {
      if (std::exchange(begun_, true)) return;
      open_in(c.text("dir"));
      cut_behind(c.integer("step"));
    }
    if (kind == "end" && std::exchange(ended_, true)) return;
    if (kind == "step" && c.integer("due", 1) == 0 && c.integer("skipped") == 0) return;
    const std::string line = line_of(c);
    write_line(line);
    if (stdout_ >= 0) write_all(stdout_, line);
  }

 private:
  void open_in(std::string_view dir) {
    if (dir.empty()) return;
    path_ = std::string(dir) + "/metrics.jsonl";
    file_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) return complain();
  }

  // A run that goes on takes the steps behind its checkpoint again, and a step stands once. Half a line at the end goes
  // too.
  void cut_behind(int64_t step) {
    if (file_ < 0) return;
    std::string text(static_cast<size_t>(std::max<off_t>(lseek(file_, 0, SEEK_END), 0)), '\0');
    if (pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return complain();
    size_t keep = 0;
    for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      if (step_of(std::string_view(text).substr(at, end - at)) > step) break;
      keep = end + 1;
    }
    if (keep < text.size() && ftruncate(file_, static_cast<off_t>(keep)) != 0) return complain();
    torn_ = false;
  }

  // Of a pipe that does not block, as some programs make them: half a line would run into the next.
  static bool is_ready(int file) {
    pollfd wanted = {file, POLLOUT, 0};
    while (poll(&wanted, 1, -1) < 0)
      if (errno != EINTR) return false;
    return (wanted.revents & POLLOUT) != 0;
  }

  // How many bytes were not written.
  static size_t write_all(int file, std::string_view rest) {
    while (!rest.empty()) {
      const ssize_t n = write(file, rest.data(), rest.size());
      if (n < 0 && (errno == EINTR || (errno == EAGAIN && is_ready(file)))) continue;
      if (n <= 0) break;
      rest.remove_prefix(static_cast<size_t>(n));
    }
    return rest.size();
  }

  void write_line(std::string_view line) {
    if (file_ < 0) return;
    std::string whole = torn_ ? "\n" : "";
    whole += line;
    const size_t left = write_all(file_, whole);
    torn_ = left > 0 && (torn_ || left != whole.size());
    if (left > 0) complain();
  }

  // Once: a full disk is said, and does not end the training.
  void complain() {
    if (!std::exchange(complained_, true))
      log_line(MORTISE_LOG_WARNING, "log.jsonl cannot write " + path_ + ": " + std::strerror(errno) +
                                        "; the run goes on without these lines");
  }

  const int stdout_;
  bool begun_ = false, ended_ = false, torn_ = false, complained_ = false;
  int file_ = -1;
  std::string path_;
};
}  // namespace

MORTISE_PLUGIN(Jsonl, mortise::listen<&Jsonl::listen>("record"), mortise::listen<&Jsonl::listen>("run.begin"),
               mortise::listen<&Jsonl::listen>("run.end"))
