#include "core/cli/bench/rows.hpp"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "core/base/progress.hpp"
#include "core/base/text.hpp"
#include "core/cli/bench/process.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"
#include "core/cli/signals.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

// One line on a terminal, drawn again and gone when the row ends; nothing elsewhere.
class LiveLine {
 public:
  void draw(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    const ProgressScreen& screen = progress_screen();
    if (!screen.out || !screen.redrawn || now - drawn_ < screen.between) return;
    drawn_ = now;
    std::string shown = text;
    if (const size_t width = terminal_width(STDERR_FILENO))
      while (text_width(shown) >= width) shown.pop_back();
    *screen.out << "\r" << shown << "\x1b[K" << std::flush;
    is_drawn_ = true;
  }
  void clear() {
    if (std::exchange(is_drawn_, false)) *progress_screen().out << "\r\x1b[K" << std::flush;
  }

 private:
  std::chrono::steady_clock::time_point drawn_;
  bool is_drawn_ = false;
};

class Measuring {
 public:
  Measuring(const Matrix& matrix, const BenchDirectory& directory, std::vector<std::string> words, Bench& bench)
      : matrix_(matrix), directory_(directory), words_(std::move(words)), bench_(bench),
        prints_(!globals().json && !globals().quiet) {}

  void measure_all() {
    for (const Measure& row : bench_.rows) width_ = std::max(width_, text_width(escape_control(row.name)));
    print(headers());
    size_t i = 0;
    for (const MatrixRow& row : matrix_.rows) {
      if (!row.is_measured) continue;
      Measure& measure = bench_.rows[i++];
      if (measure.state.empty() && !end_asked()) measure_one(row, measure, i);
      if (!measure.state.empty()) print(cells(measure, bench_.rows[0]));
    }
  }

 private:
  void print(const std::vector<std::string>& cells) const {
    if (prints_) std::cout << table_line(cells, width_) << std::endl;
  }

  void measure_one(const MatrixRow& row, Measure& measure, size_t number) {
    const std::string run = directory_.run(row.file);
    fs::remove_all(run);
    std::vector<std::string> words = {fs::read_symlink("/proc/self/exe").string(), "train"};
    if (!row.program.empty()) words = {row.program};
    words.push_back(directory_.manifest(row.file));
    words.insert(words.end(), words_.begin(), words_.end());
    words.insert(words.end(), {"--set", "run.dir=" + run, "--color", "never"});
    Meter meter(matrix_.warmup);
    LiveLine live;
    const std::string what = fmt::format("{}/{}  {}", number, bench_.rows.size(), escape_control(row.name));
    const RowEnd end = run_row(
        {words, directory_.output(row.file), run + "/metrics.jsonl"}, [&](std::string_view line) { meter.take(line); },
        [&] { live.draw(what + "  " + (meter.progress().empty() ? "starting" : meter.progress())); });
    live.clear();
    measure.exit = end.exit;
    measure.process_seconds = end.seconds;
    const bool is_whole = meter.finish(measure);
    if (end.exit == kExitOk && is_whole) {
      measure.state = "measured";
    } else if (!end.asked) {
      measure.state = "failed";
      measure.why = end.exit == kExitOk ? "it recorded no step" : why_it_failed(directory_.output(row.file), end.exit);
    }
    bench_.ended = utc_now();
    directory_.write(bench_);
  }

  const Matrix& matrix_;
  const BenchDirectory& directory_;
  std::vector<std::string> words_;
  Bench& bench_;
  bool prints_;
  size_t width_ = 0;
};

}  // namespace

void measure_rows(const Matrix& matrix, const BenchDirectory& directory, const std::vector<std::string>& words,
                  Bench& bench) {
  Measuring(matrix, directory, words, bench).measure_all();
}

}  // namespace mortise::cli
