#include "core/cli/bench/report.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/print.hpp"

namespace mortise::cli {
namespace {

constexpr std::string_view kNothing = "-";

std::string rate_text(std::optional<double> rate) {
  if (!rate) return std::string(kNothing);
  return *rate >= 1000 ? with_commas(std::llround(*rate))
                       : formatted(*rate >= 100  ? "%.0f"
                                   : *rate >= 10 ? "%.1f"
                                                 : "%.2f",
                                   *rate);
}

std::string tflop_text(std::optional<double> flop_per_s) {
  if (flop_per_s && *flop_per_s < 1e11) return formatted("%.4f", *flop_per_s / 1e12);
  return rate_text(flop_per_s ? std::optional(*flop_per_s / 1e12) : std::nullopt);
}

std::string percent_text(std::optional<double> share) {
  return share ? formatted("%.1f%%", 100 * *share) : std::string(kNothing);
}

std::string mib_text(std::optional<int64_t> bytes) { return bytes ? with_commas(*bytes >> 20) : std::string(kNothing); }

std::string loss_text(const Measure& row) {
  const auto one = [](std::optional<double> loss) { return loss ? formatted("%.3f", *loss) : std::string("?"); };
  return one(row.loss_first) + " -> " + one(row.loss_last);
}

std::string failed_text(const Measure& row) {
  return row.state == "failed" ? "failed: " + row.why : "not measured yet";
}

std::string count_text(size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

// How the figures were taken: nothing is said of them without it.
std::vector<std::pair<std::string, std::string>> conditions(const Bench& b) {
  const auto measured = std::ranges::find_if(b.rows, &Measure::is_measured);
  return {{"device", measured == b.rows.end() ? "" : measured->device},
          {"machine", b.processor + ", " + std::to_string(b.cpus) + " processors, " + b.system + ", " + b.host},
          {"versions", "mortise " + b.mortise + ", ABI " + b.abi},
          {"rows", count_text(b.rows.size(), "row") + ", each in a fresh process; " +
                       (b.warmup == 1 ? "1 step" : std::to_string(b.warmup) + " steps") +
                       " of warming up apart, in `steady`, `x`, `tok/s` and `TFLOP/s`"},
          {"taken", b.began + " to " + b.ended},
          {"command", b.command}};
}

constexpr std::string_view kExplained =
    "`samples/s` is of the whole training, `steady` without the first steps, `x` is `steady` over that of the first "
    "row. "
    "`TFLOP/s` is of the matrix products that the model needs for its tokens, 6 for a parameter and attention's, "
    "nothing counted that is computed again; `MFU` is its share of what the device's maker says. "
    "`peak MiB` is the most that the device's allocator held (on a CPU: the process), `GPU MiB` the most that the "
    "driver "
    "counts, where a plugin reports it.";

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #59636e; --grid: #e1e5ea; --dot: #0969da;
        --first: #c4432b; --wrong: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --back: #0f1318; --text: #e6eaef; --dim: #9aa5b1; --grid: #2a313a; --dot: #6cb2ff; --first: #ff9479;
          --wrong: #ff8a80; }
}
body { margin: 0 auto; max-width: 1180px; padding: 16px; background: var(--back); color: var(--text);
       font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 8px 0; overflow-wrap: anywhere; }
p, dd { color: var(--dim); overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; margin: 12px 0; }
svg text { font: 13px system-ui, sans-serif; fill: var(--text); }
svg .dim { fill: var(--dim); }
svg .grid { stroke: var(--grid); }
svg .lead { stroke: var(--dim); stroke-width: .7; }
svg .dot { fill: var(--dot); }
svg .first { fill: var(--first); }
svg.narrow { display: none; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, td.wrong { text-align: left; white-space: normal; overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: 500; }
.wrong { color: var(--wrong); }
dt { font-weight: 600; }
dd { margin: 0 0 8px; }
@media (max-width: 700px) {
  svg.wide, thead { display: none; }
  svg.narrow { display: block; }
  tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--grid); }
  td { display: flex; justify-content: space-between; gap: 12px; border: 0; padding: 2px 0; }
  td:first-child { font-weight: 600; }
  td:not(:first-child):not(.wrong)::before { content: attr(data-of); color: var(--dim); }
}
)";

// Without its code in backticks.
std::string plain(std::string_view text) {
  std::string out(text);
  std::erase(out, '`');
  return out;
}

std::string table_html(const Bench& b) {
  std::string out = "<table>\n<thead><tr>";
  for (const std::string& header : headers()) out += "<th>" + html_text(header) + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const Measure& row : b.rows) {
    const std::vector<std::string> all = cells(row, b.rows[0]);
    out += "<tr><td>" + html_text(all[0]) + "</td>";
    if (!row.is_measured())
      out += fmt::format("<td class=\"wrong\" colspan=\"{}\">{}</td>", headers().size() - 1, html_text(all[1]));
    else
      for (size_t i = 1; i < all.size(); ++i)
        out += "<td data-of=\"" + html_text(headers()[i]) + "\">" + html_text(all[i]) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n";
}

std::string plots_html(const Bench& b) {
  std::vector<const Measure*> rows;
  for (const Measure& row : b.rows)
    if (row.is_measured() && row.memory_peak_bytes) rows.push_back(&row);
  if (rows.empty()) return "<p>No row has been measured, so there is nothing to plot.</p>\n";
  // The driver's count, where every row has it.
  const bool by_driver = std::ranges::all_of(rows, [](const Measure* r) { return r->nvml_peak_bytes.has_value(); });
  std::vector<PlotPoint> points;
  for (const Measure* r : rows)
    points.push_back({escape_control(r->name),
                      static_cast<double>((by_driver ? *r->nvml_peak_bytes : *r->memory_peak_bytes) >> 20),
                      rate_of(*r)});
  const std::string x = by_driver ? "GPU MiB" : "peak MiB", y = "samples/s, steady";
  std::string wide = plot_svg(points, x, y, 1000, 460), narrow = plot_svg(points, x, y, 368, 420);
  return wide.replace(0, 4, "<svg class=\"wide\"") + narrow.replace(0, 4, "<svg class=\"narrow\"");
}

}  // namespace

size_t Bench::missing() const {
  return static_cast<size_t>(std::ranges::count_if(rows, [](const Measure& row) { return row.state.empty(); }));
}

const std::vector<std::string>& headers() {
  static const std::vector<std::string> all = {"row",     "seconds", "samples/s", "steady",  "x",   "tok/s",
                                               "TFLOP/s", "MFU",     "peak MiB",  "GPU MiB", "loss"};
  return all;
}

std::vector<std::string> cells(const Measure& row, const Measure& first) {
  const std::string name = escape_control(row.name);
  if (!row.is_measured()) return {name, failed_text(row)};
  const std::optional<double> times = ratio(row, first);
  return {name,
          formatted(row.seconds < 10 ? "%.2f" : "%.1f", row.seconds),
          rate_text(row.samples_per_s),
          rate_text(row.steady_samples_per_s),
          times ? formatted("%.2f", *times) : std::string(kNothing),
          rate_text(row.tokens_per_s),
          tflop_text(row.flop_per_s),
          percent_text(row.mfu),
          mib_text(row.memory_peak_bytes),
          mib_text(row.nvml_peak_bytes),
          loss_text(row)};
}

std::string table_line(const std::vector<std::string>& cells, size_t name_width) {
  constexpr size_t kWidths[] = {0, 8, 11, 9, 6, 10, 9, 7, 10, 9};
  std::string out = cells[0] + std::string(name_width - std::min(name_width, text_width(cells[0])), ' ');
  if (cells.size() < headers().size()) return out + "  " + cells[1];
  for (size_t i = 1; i < std::size(kWidths); ++i)
    out += std::string(kWidths[i] - std::min(kWidths[i] - 1, text_width(cells[i])), ' ') + cells[i];
  return out + "  " + cells.back();
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  return out;
}

Json results_json(const Bench& b) {
  Json rows = Json::array();
  for (const Measure& row : b.rows) rows.push_back(json_of(row, b.rows[0]));
  return {{"bench", b.name},
          {"matrix", b.matrix},
          {"command", b.command},
          {"mortise", b.mortise},
          {"abi", b.abi},
          {"began", b.began},
          {"ended", b.ended},
          {"machine", {{"host", b.host}, {"system", b.system}, {"processor", b.processor}, {"processors", b.cpus}}},
          {"warmup", b.warmup},
          {"complete", b.missing() == 0},
          {"rows", rows}};
}

std::string table_markdown(const Bench& b) {
  std::string out = "# " + markdown_cell(escape_control(b.name)) + "\n\n|";
  for (const std::string& header : headers()) out += " " + header + " |";
  out += "\n|---|";
  for (size_t i = 1; i < headers().size(); ++i) out += "---:|";
  for (const Measure& row : b.rows) {
    out += "\n|";
    for (const std::string& cell : cells(row, b.rows[0])) out += " " + markdown_cell(cell) + " |";
    if (!row.is_measured()) out += std::string(headers().size() - 2, '|');
  }
  out += "\n\n" + std::string(kExplained) + "\n\n";
  for (const auto& [what, text] : conditions(b))
    if (!text.empty()) out += "- " + what + ": " + (what == "command" ? "`" + text + "`" : text) + "\n";
  return out;
}

std::string report_html(const Bench& b) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      html_text(b.name) + "</title>\n<style>" + std::string(kStyle) + "</style>\n<h1>" + html_text(b.name) + "</h1>\n" +
      plots_html(b) + table_html(b) + "<p>" + html_text(plain(kExplained)) + "</p>\n<dl>\n";
  for (const auto& [what, text] : conditions(b))
    if (!text.empty()) out += "<dt>" + what + "</dt><dd>" + html_text(plain(text)) + "</dd>\n";
  return out + "</dl>\n</html>\n";
}

}  // namespace mortise::cli
