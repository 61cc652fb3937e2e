#include "core/cli/bench/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "core/cli/columns.hpp"

namespace mortise::cli {
namespace {

Measure measured(const std::string& name, double rate, int64_t mib) {
  Measure row{.name = name,
              .file = name,
              .key = "k",
              .build = "b",
              .machine = "m",
              .state = "measured",
              .device = "device.cpu",
              .seconds = 14.06};
  row.samples_per_s = rate;
  row.steady_samples_per_s = rate * 1.1;
  row.memory_peak_bytes = mib << 20;
  if (name == "vanilla") row.tokens_per_s = 37300, row.flop_per_s = 88.9e12, row.mfu = 0.133;
  row.loss_first = 0.702;
  return row;
}

Bench three_rows() {
  Bench b{.name = "guides", .matrix = "guides.toml", .command = "mortise bench guides.toml", .mortise = "0.1.0"};
  b.warmup = 2;
  b.rows = {measured("vanilla", 36.4, 8110), measured("a | <b>", 1822.4, 955), {.name = "fp16", .file = "fp16"}};
  b.rows[2].state = "failed";
  b.rows[2].why = "error[out_of_memory]: no";
  return b;
}

TEST(Table, HasARowsNumbersAndThoseBesideTheFirst) {
  const Bench b = three_rows();
  EXPECT_EQ(cells(b.rows[1], b.rows[0]), (std::vector<std::string>{"a | <b>", "14.1", "1,822", "2,005", "50.07", "-",
                                                                   "-", "-", "955", "-", "0.702 -> ?"}));
  EXPECT_EQ(cells(b.rows[2], b.rows[0]), (std::vector<std::string>{"fp16", "failed: error[out_of_memory]: no"}));
}

TEST(Table, StandsInColumnsLineByLine) {
  const Bench b = three_rows();
  const std::string head = table_line(headers(), 8), line = table_line(cells(b.rows[0], b.rows[0]), 8);
  EXPECT_EQ(head, "row      seconds  samples/s   steady     x     tok/s  TFLOP/s    MFU  peak MiB  GPU MiB  loss");
  EXPECT_EQ(line,
            "vanilla     14.1       36.4     40.0  1.00    37,300     88.9  13.3%     8,110        -  0.702 -> ?");
  EXPECT_EQ(table_line(cells(b.rows[2], b.rows[0]), 8), "fp16      failed: error[out_of_memory]: no");
}

TEST(Table, OfMarkdownKeepsItsColumns) {
  const std::string page = table_markdown(three_rows());
  EXPECT_NE(page.find("| a \\| <b> | 14.1 |"), page.npos) << page;
  std::vector<std::string> rows;
  for (size_t at = 0, end; (end = page.find('\n', at)) != page.npos; at = end + 1)
    if (page[at] == '|') rows.push_back(std::regex_replace(page.substr(at, end - at), std::regex(R"(\\\|)"), ""));
  ASSERT_EQ(rows.size(), 5U);
  for (const std::string& row : rows) EXPECT_EQ(std::ranges::count(row, '|'), 12) << row;
  EXPECT_NE(page.find("- command: `mortise bench guides.toml`"), page.npos);
}

TEST(Results, SayWhatIsMissing) {
  Bench b = three_rows();
  EXPECT_EQ(results_json(b)["complete"], true) << "one that failed is no missing one";
  b.rows[1] = {.name = "b"};
  const Json results = results_json(b);
  EXPECT_EQ(results["complete"], false);
  EXPECT_EQ(results["rows"][1]["state"], "missing");
  EXPECT_EQ(results["rows"][2]["error"], "error[out_of_memory]: no");
  EXPECT_EQ(results["rows"][0]["ratio"], 1.0);
}

TEST(Page, NeedsNothingBesideIt) {
  const std::string page = report_html(three_rows());
  for (const char* outside : {"http", "src=", "href=", "@import", "url(", "<script"})
    EXPECT_EQ(page.find(outside), page.npos) << outside;
  EXPECT_NE(page.find("prefers-color-scheme: dark"), page.npos);
  EXPECT_NE(page.find("width=device-width"), page.npos);
}

TEST(Page, HasAPointAndALabelForEachRowThatWasMeasured) {
  const std::string page = report_html(three_rows());
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = page.find(text); at != page.npos; at = page.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<svg "), 2U) << "one for a narrow screen";
  EXPECT_EQ(count("<circle "), 4U);
  EXPECT_EQ(count(">vanilla</text>"), 2U);
  EXPECT_EQ(count(">a | &lt;b&gt;</text>"), 2U);
  EXPECT_EQ(count("<b>"), 0U) << "a name is no markup";
  EXPECT_NE(page.find("failed: error[out_of_memory]: no"), page.npos);
}

TEST(Page, SaysTheMemoryThatTheTableSays) {
  Bench b = three_rows();
  b.rows[0].memory_peak_bytes = (int64_t{226} << 20) + (3 << 18);
  EXPECT_EQ(cells(b.rows[0], b.rows[0])[8], "226");
  EXPECT_NE(report_html(b).find(", 226 peak MiB"), std::string::npos);
}

TEST(Page, IsMadeOfABenchWithoutARow) {
  Bench b = three_rows();
  b.rows = {{.name = "only"}};
  EXPECT_NE(report_html(b).find("nothing to plot"), std::string::npos);
}

struct Box {
  double x, y, width;
};

// The labels of an <svg>, with the width that they were given room for.
std::vector<Box> labels(const std::string& svg) {
  static const std::regex form(R"re(<text class="label" x="([-\d.]+)" y="([-\d.]+)" text-anchor="start">([^<]*)<)re");
  std::vector<Box> all;
  for (std::sregex_iterator it(svg.begin(), svg.end(), form), end; it != end; ++it)
    all.push_back({std::stod((*it)[1]), std::stod((*it)[2]), static_cast<double>(text_width((*it)[3].str())) * 7});
  return all;
}

// Rows of a bench are alike: ten within a few per cent of one another.
TEST(Plot, LabelsDoNotLieOnOneAnotherAndStayInside) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 10; ++i) points.push_back({"row number " + std::to_string(i), 1000.0 + i % 3, 50.0 + i * 0.01});
  for (const double width : {368.0, 1000.0}) {
    const std::vector<Box> all = labels(plot_svg(points, "MiB", "samples/s", width, 420));
    ASSERT_EQ(all.size(), 10U);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_GE(all[i].x, 0);
      EXPECT_LE(all[i].x + all[i].width, width);
      for (size_t j = 0; j < i; ++j)
        EXPECT_FALSE(std::abs(all[i].y - all[j].y) < 13 && all[i].x < all[j].x + all[j].width &&
                     all[j].x < all[i].x + all[i].width)
            << width << ": " << i << " on " << j;
    }
  }
}

TEST(Plot, TakesOnePointAndPointsAtZero) {
  for (const std::vector<PlotPoint>& points : {std::vector<PlotPoint>{{"a", 5, 5}}, {{"a", 0, 0}, {"b", 0, 0}}}) {
    const std::string svg = plot_svg(points, "x", "y", 400, 300);
    EXPECT_EQ(svg.find("nan"), svg.npos);
    EXPECT_EQ(svg.find("inf"), svg.npos);
  }
}

}  // namespace
}  // namespace mortise::cli
