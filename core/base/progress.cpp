#include "core/base/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "core/base/text.hpp"

namespace mortise {

bool stderr_is_redrawn() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) && term && *term && std::string_view(term) != "dumb";
}

ProgressScreen& progress_screen() {
  static ProgressScreen screen{&std::cerr, stderr_is_redrawn(), std::chrono::seconds(1),
                               std::chrono::milliseconds(200)};
  return screen;
}

void ProgressLine::add(uint64_t done) {
  done_ += done;
  const ProgressScreen& screen = progress_screen();
  const auto now = Clock::now();
  if (!screen.out || now - began_ < screen.after || (shown_ && (!screen.redrawn || now - drawn_ < screen.between)))
    return;
  drawn_ = now;
  shown_ = true;
  const double share = total_ ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1;
  const double left = share > 0 ? std::chrono::duration<double>(now - began_).count() * (1 - share) / share : 0;
  const std::string line =
      escape_control(what_) + formatted("  %.0f %%", 100 * share) + (left < 0.5 ? "" : formatted("  %.0fs left", left));
  *screen.out << (screen.redrawn ? "\r" + line + "\x1b[K" : line + "\n") << std::flush;
}

ProgressLine::~ProgressLine() {
  if (shown_ && progress_screen().redrawn) *progress_screen().out << "\r\x1b[K" << std::flush;
}

}  // namespace mortise
