// What training prints: one line a record, flushed, so that a pipe sees it at once. Columns may be missing; then their clause is.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

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
std::string in_unit(double bytes, SizeUnit unit) { return format(bytes / unit.bytes < 9.95 ? "%.1f" : "%.0f", bytes / unit.bytes); }
std::string byte_size(double bytes) { return in_unit(bytes, unit_of(bytes)) + " " + unit_of(bytes).name; }

// ---- lines ----

// "step    ": what a line is about stands in eight columns.
std::string heading(std::string_view name) {
  std::string s(name);
  return s.append(s.size() < 8 ? 8 - s.size() : 1, ' ');
}

std::string step_of(const Columns& c) {
  std::string s = std::to_string(c.integer("step"));
  if (c.has("of")) s += "/" + std::to_string(c.integer("of"));
  return s;
}

std::string skipped(const Columns& c) {
  const double norm = c.number("grad_norm");
  std::string s = "  skipped: gradient";
  if (const std::string_view name = c.text("skipped_parameter"); !name.empty()) s += " of " + std::string(name);
  s += std::isnan(norm) ? " is nan" : std::isinf(norm) ? " is inf" : " is not finite";
  if (c.has("skipped_in_a_row") && c.has("stop_after"))
    s += " (" + with_commas(c.integer("skipped_in_a_row")) + " of " + with_commas(c.integer("stop_after")) + " in a row before stopping)";
  return s;
}

std::string throughput(const Columns& c) {
  const bool tokens = c.has("throughput_unit") ? c.text("throughput_unit") == "tok" : c.has("tokens_per_s");
  const char* column = tokens ? "tokens_per_s" : "samples_per_s";
  return c.has(column) ? "  " + short_count(c.number(column)) + (tokens ? " tok/s" : " samples/s") : "";
}

std::string memory(const Columns& c) {
  if (!c.has("memory_bytes")) return "";
  const double used = c.number("memory_bytes"), total = c.number("memory_total_bytes");
  if (!(total > 0)) return "  mem " + byte_size(used);
  return "  mem " + in_unit(used, unit_of(total)) + "/" + in_unit(total, unit_of(total)) + " " + unit_of(total).name;
}

std::string step_line(const Columns& c) {
  std::string s = heading("step") + step_of(c);
  if (c.integer("skipped") != 0) return s + skipped(c);
  if (c.has("loss")) s += "  loss " + plain(c.number("loss"), 3);
  if (c.has("lr")) s += format("  lr %.1e", c.number("lr"));
  if (c.has("grad_norm")) s += "  grad " + plain(c.number("grad_norm"), 2);
  s += throughput(c) + memory(c);
  if (c.number("data_wait_share") > 0.05) s += format("  waiting for data %.0f%%", 100 * c.number("data_wait_share"));
  if (c.number("left_s") >= 0.5) s += "  " + duration(c.number("left_s"), false) + " left";
  return s;
}

std::string eval_line(const Columns& c) {
  std::string s = heading("eval") + step_of(c), measured;
  for (const mortise_column& column : c.all())
    if (view(column.name).starts_with("eval.")) s += "  " + std::string(view(column.name)) + " " + plain(c.number(view(column.name)), 3);
  for (const char* unit : {"tokens", "samples"})
    if (measured.empty() && c.integer(unit) > 0) measured = with_commas(c.integer(unit)) + " " + unit;
  if (c.has("seconds")) measured += (measured.empty() ? "" : ", ") + duration(c.number("seconds"));
  if (!measured.empty()) s += "  (" + measured + ")";
  return c.integer("best") != 0 ? s + "   best so far, kept" : s;
}

std::string saved_line(const Columns& c) {
  std::string s = heading("saved") + format("%-9lld", static_cast<long long>(c.integer("step")));
  if (c.has("bytes")) s += "  " + byte_size(c.number("bytes"));
  if (c.has("seconds")) s += " in " + duration(c.number("seconds"));
  if (c.integer("background") != 0) s += ", in the background";
  return c.text("path").empty() ? s : s + "  " + std::string(c.text("path"));
}

// Text of several lines hangs under its first. What a terminal would obey, or is no UTF-8, is shown as \x1b.
std::string hanging(std::string_view name, std::string_view text) {
  std::string s = heading(name);
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = length == 1 && (first < 0x20 || first == 0x7F) && first != '\t';
    if (first == '\n') {
      s += "\n        ";
    } else if (length == 0 || control) {
      s += format("\\x%02x", first);
    } else {
      s += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return s;
}

std::string end_line(const Columns& c) {
  const int64_t code = c.integer("exit");
  std::string s = heading(code == 0 ? "done" : "stopped");
  s += with_commas(c.integer("steps")) + (c.integer("steps") == 1 ? " step" : " steps");
  if (c.has("seconds")) s += " in " + duration(c.number("seconds"));
  if (c.integer("steps") > 0 && c.has("loss_first") && c.has("loss_last"))
    s += "  loss " + plain(c.number("loss_first"), 2) + " -> " + plain(c.number("loss_last"), 2);
  if (!c.text("dir").empty()) s += "  " + std::string(c.text("dir"));
  if (!c.text("reason").empty()) s += "  " + std::string(c.text("reason"));
  if (code != 0) s += " · exit " + std::to_string(code);
  return c.text("next").empty() ? s : s + "\n" + heading("next") + std::string(c.text("next"));
}

class Console {
 public:
  void listen(const mortise_event* event) {
    if (!event->record) return;
    const Columns columns(*event->record);
    const std::string_view kind = columns.kind();
    if (kind == "run") {
      if (!std::exchange(begun_, true)) begin(columns);
    } else if (kind == "end") {
      if (!std::exchange(ended_, true)) print(end_line(columns));
    } else if (kind == "step") {
      if (columns.integer("due", 1) != 0 || columns.integer("skipped") != 0) print(step_line(columns));
    } else if (kind == "eval") {
      print(eval_line(columns));
    } else if (kind == "saved") {
      print(saved_line(columns));
    } else if (kind == "sample") {
      print(hanging("sample", step_of(columns) + "\n" + std::string(columns.text("text"))));
    } else if (kind == "note") {
      print(hanging("note", columns.text("text")));
    }
  }

 private:
  static void begin(const Columns& columns) {
    for (const mortise_column& c : columns.all())
      for (const char* row : {"run", "model", "data", "device", "batch"})
        if (view(c.name) == row && c.value.tag == MORTISE_TEXT) print(hanging(row, view(c.value.v.s)));
  }

  // A closed pipe is not the run's trouble: what cannot be printed is lost.
  static void print(std::string line) {
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

  bool begun_ = false, ended_ = false;  // "run" and "end" come as events of their own and may come as records too
};
}  // namespace

MORTISE_PLUGIN(Console, mortise::listen<&Console::listen>("record"), mortise::listen<&Console::listen>("run.begin"),
               mortise::listen<&Console::listen>("run.end"))
