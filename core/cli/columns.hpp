// Text in columns, each as wide as its widest cell. The last cell of a row runs on: it makes no column wider.
#pragma once
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace mortise::cli {

constexpr size_t kColumnGap = 2;
using Rows = std::vector<std::vector<std::string>>;

// As a terminal counts: continuation bytes of UTF-8 take no room.
inline size_t text_width(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Of the terminal that a descriptor is; 0 if it is none.
inline size_t terminal_width(int fd) {
  winsize size{};
  return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

inline void print_columns(std::ostream& out, const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], text_width(row[i]) + kColumnGap);
    }
  for (const auto& row : rows) {
    size_t blanks = 0;  // owed before the next cell that has text, so that no line ends in blanks
    for (size_t i = 0; i < row.size(); ++i) {
      if (!row[i].empty()) {
        out << std::string(blanks, ' ') << row[i];
        blanks = 0;
      }
      if (i + 1 < row.size()) blanks += widths[i] - text_width(row[i]);
    }
    out << '\n';
  }
}

}  // namespace mortise::cli
