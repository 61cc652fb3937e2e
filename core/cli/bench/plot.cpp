// The plot of a bench as SVG. Labels look for a free place around their points.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/cli/bench/report.hpp"
#include "core/cli/columns.hpp"

namespace mortise::cli {
namespace {

constexpr double kFont = 13, kDot = 5, kLetter = 0.56 * kFont;  // pixels; how wide a letter is, about
constexpr double kLeft = 56, kRight = 16, kTop = 28, kBottom = 48;
constexpr double kApart = 8;  // between labels side by side
constexpr size_t kLongestLabel = 28;

struct Box {
  double x, y, width, height;
  bool meets(const Box& o) const {
    return x < o.x + o.width && o.x < x + width && y < o.y + o.height && o.y < y + height;
  }
  bool is_in(const Box& o) const {
    return x >= o.x && y >= o.y && x + width <= o.x + o.width && y + height <= o.y + o.height;
  }
};

// Round numbers around the values; from 0 where they are not all far from it.
struct Axis {
  double from = 0, to = 1, step = 1;

  Axis(double least, double most, double ticks) {
    const double span = most > 0 ? most : 1;
    from = least > 0.5 * span ? least - 0.25 * (span - least) - 0.02 * span : 0;
    step = round_up((span * 1.05 - from) / ticks);
    from = std::floor(from / step) * step;
    to = std::ceil(span * 1.05 / step) * step;
  }
  static double round_up(double step) {
    const double unit = std::pow(10, std::floor(std::log10(step)));
    for (const double times : {1.0, 2.0, 5.0})
      if (step <= times * unit * 1.0001) return times * unit;
    return 10 * unit;
  }
  double share(double value) const { return (value - from) / (to - from); }
  std::string text(double value) const {
    return step >= 1 ? with_commas(std::llround(value))
                     : formatted(step >= 0.1    ? "%.1f"
                                 : step >= 0.01 ? "%.2f"
                                                : "%.3g",
                                 value);
  }
};

std::string shortened(const std::string& label) {
  if (text_width(label) <= kLongestLabel) return label;
  std::string out = label.substr(0, kLongestLabel - 1);
  while (!out.empty() && !is_utf8(out)) out.pop_back();
  return out + "…";
}

class Plot {
 public:
  Plot(const std::vector<PlotPoint>& points, double width, double height)
      : points_(points), area_{kLeft, kTop, width - kLeft - kRight, height - kTop - kBottom}, width_(width),
        height_(height), x_(axis(&PlotPoint::x, width < 600 ? 3 : 7)), y_(axis(&PlotPoint::y, 5)) {}

  std::string svg(const std::string& x_title, const std::string& y_title) {
    out_ = fmt::format("<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" aria-label=\"{2} against {3}\">\n", width_,
                       height_, html_text(y_title), html_text(x_title));
    grid();
    text(area_.x - 40, kTop - 12, "start", "dim", y_title);
    text(area_.x + area_.width, height_ - 10, "end", "dim", x_title);
    for (const PlotPoint& point : points_) taken_.push_back(dot(point));
    for (const PlotPoint& point : points_) label(point);
    for (size_t i = 0; i < points_.size(); ++i)
      out_ += fmt::format(
          "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}: {} {}, {} {}</title></circle>\n",
          i == 0 ? "first" : "dot", at_x(points_[i]), at_y(points_[i]), kDot, html_text(points_[i].label),
          short_count(points_[i].y), html_text(y_title), with_commas(std::llround(points_[i].x)), html_text(x_title));
    return out_ + "</svg>\n";
  }

 private:
  Axis axis(double PlotPoint::* value, double ticks) const {
    const auto [least, most] = std::ranges::minmax_element(points_, {}, value);
    return points_.empty() ? Axis(0, 1, ticks) : Axis((*least).*value, (*most).*value, ticks);
  }
  double at_x(const PlotPoint& p) const { return area_.x + x_.share(p.x) * area_.width; }
  double at_y(const PlotPoint& p) const { return area_.y + (1 - y_.share(p.y)) * area_.height; }
  Box dot(const PlotPoint& p) const { return {at_x(p) - kDot, at_y(p) - kDot, 2 * kDot, 2 * kDot}; }

  void text(double x, double y, const char* anchor, const char* style, const std::string& words) {
    out_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", style, x, y,
                        anchor, html_text(words));
  }
  void line(const char* style, double x1, double y1, double x2, double y2) {
    out_ += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1,
                        x2, y2);
  }

  void grid() {
    for (double v = y_.from; v < y_.to + y_.step / 2; v += y_.step) {
      const double y = area_.y + (1 - y_.share(v)) * area_.height;
      line("grid", area_.x, y, area_.x + area_.width, y);
      text(area_.x - 8, y + 4, "end", "dim", y_.text(v));
    }
    for (double v = x_.from; v < x_.to + x_.step / 2; v += x_.step) {
      const double x = area_.x + x_.share(v) * area_.width;
      line("grid", x, area_.y, x, area_.y + area_.height);
      text(x, area_.y + area_.height + 18, v + x_.step / 2 > x_.to ? "end" : "middle", "dim", x_.text(v));
    }
  }

  // Beside the point, else further away with a line to it, else to its right whatever is there.
  void label(const PlotPoint& point) {
    const std::string words = shortened(point.label);
    const double wide = static_cast<double>(text_width(words)) * kLetter, high = kFont + 2;
    const double x = at_x(point), y = at_y(point), gap = kDot + 4;
    Box best{x + gap, y - high / 2, wide, high};
    bool is_free = false;
    for (int ring = 0; ring < 9 && !is_free; ++ring)
      for (const double up : {-1.0, 1.0})
        for (const double left : {x + gap, x - gap - wide, x - wide / 2}) {
          if (ring == 0 && left == x - wide / 2) continue;  // over its own point
          const Box box{left, y - high / 2 + up * ring * high, wide, high};
          if (is_free || !box.is_in(area_) || std::ranges::any_of(taken_, [&](const Box& o) { return box.meets(o); }))
            continue;
          best = box;
          is_free = true;
        }
    taken_.push_back({best.x - kApart, best.y, best.width + 2 * kApart, best.height});
    const double middle = best.y + high / 2;
    if (std::abs(middle - y) > 1.5 * high)
      line("lead", x, y, std::clamp(x, best.x, best.x + wide), middle < y ? best.y + high : best.y);
    text(best.x, best.y + high - 4, "start", "label", words);
  }

  const std::vector<PlotPoint>& points_;
  Box area_;
  double width_, height_;
  Axis x_, y_;
  std::vector<Box> taken_;
  std::string out_;
};

}  // namespace

std::string plot_svg(const std::vector<PlotPoint>& points, const std::string& x_title, const std::string& y_title,
                     double width, double height) {
  return Plot(points, width, height).svg(x_title, y_title);
}

}  // namespace mortise::cli
