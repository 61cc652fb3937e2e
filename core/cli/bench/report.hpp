// The table of a bench: for a terminal a line at a time, as Markdown, and as a page that needs nothing beside it.
#pragma once
#include <string>
#include <vector>

#include "core/cli/bench/measure.hpp"

namespace mortise::cli {

// What a bench is, and its rows in the order of the matrix; the first is what the others are compared with.
struct Bench {
  std::string name = {}, matrix = {}, command = {}, mortise = {}, abi = {}, began = {}, ended = {};
  std::string host = {}, system = {}, processor = {};
  unsigned cpus = 0;
  int64_t warmup = 0;
  std::vector<Measure> rows = {};
  size_t missing() const;
};

// The columns, and those of a row; one that failed has its name and why.
const std::vector<std::string>& headers();
std::vector<std::string> cells(const Measure& row, const Measure& first);
// A line for a terminal: the first cell as wide as the longest name, numbers to the right of their columns.
std::string table_line(const std::vector<std::string>& cells, size_t name_width);

Json results_json(const Bench& bench);
std::string table_markdown(const Bench& bench);
std::string report_html(const Bench& bench);

// A point a row: how fast, beside how much memory.
struct PlotPoint {
  std::string label;
  double x, y;
};
// An <svg> of that size, in pixels, whose colours are those of the page.
std::string plot_svg(const std::vector<PlotPoint>& points, const std::string& x_title, const std::string& y_title,
                     double width, double height);
std::string html_text(std::string_view text);

}  // namespace mortise::cli
