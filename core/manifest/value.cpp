#include "core/manifest/value.hpp"

#include <charconv>
#include <cmath>
#include <regex>

#include "core/base/text.hpp"

namespace mortise {
namespace {

// In the singular; "s" behind one of at least two letters is its plural.
const std::map<std::string, std::pair<Unit, double>> kUnits = {
    {"step", {Unit::kSteps, 1}},     {"epoch", {Unit::kEpochs, 1}},    {"token", {Unit::kTokens, 1}},
    {"sample", {Unit::kSamples, 1}}, {"%", {Unit::kPercent, 1}},       {"percent", {Unit::kPercent, 1}},
    {"s", {Unit::kSeconds, 1}},      {"sec", {Unit::kSeconds, 1}},     {"second", {Unit::kSeconds, 1}},
    {"m", {Unit::kSeconds, 60}},     {"min", {Unit::kSeconds, 60}},    {"minute", {Unit::kSeconds, 60}},
    {"h", {Unit::kSeconds, 3600}},   {"hr", {Unit::kSeconds, 3600}},   {"hour", {Unit::kSeconds, 3600}},
    {"d", {Unit::kSeconds, 86400}},  {"day", {Unit::kSeconds, 86400}}, {"week", {Unit::kSeconds, 604800}},
};
const std::map<std::string, double> kCounts = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}};
const std::map<std::string, double> kSizes = {
    {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
};

// Beyond this, whole numbers have gaps in a double.
constexpr double kMostCounted = 0x1p53;
// std::regex recurses by the character.
constexpr size_t kLongestQuantity = 200;

// "10 B tokens", in parts.
struct Quantity {
  double number = 0;
  std::string count, unit;
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  static const std::string digits = "\\d+(?:_\\d+)*";
  // A number without a sign; K, M or B, if a unit follows; the unit.
  static const std::regex form(" *(" + digits + "(?:\\.(?:" + digits + ")?)?(?:e[-+]?" + digits +
                               ")?) *(?:([KMB]) +(?=[^ ]))?([^ ]+) *");
  std::cmatch parts;
  if (text.size() > kLongestQuantity || !std::regex_match(text.data(), text.data() + text.size(), parts, form))
    return std::nullopt;
  Quantity out{0, parts[2], parts[3]};
  std::string number = parts[1];
  std::erase(number, '_');
  const bool fits = std::from_chars(number.data(), number.data() + number.size(), out.number).ec == std::errc();
  return fits ? std::optional(out) : std::nullopt;
}

std::string one_or_list(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) quoted.push_back(json_string(text));
  return quoted.size() == 1 ? quoted[0] : "[" + join(quoted, ", ") + "]";
}

std::string text_of(std::monostate) { return ""; }
std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(int64_t number) { return std::to_string(number); }
std::string text_of(double number) { return number_text(number); }
std::string text_of(const std::string& text) { return json_string(text); }

std::string text_of(Amount amount) {
  const bool bare = amount.unit == Unit::kSteps && amount.number == std::floor(amount.number);
  return bare ? whole_text(amount.number) : json_string(amount_text(amount));
}

std::string text_of(const std::vector<Value>& list) {
  std::vector<std::string> parts;
  parts.reserve(list.size());
  for (const Value& element : list) parts.push_back(element.text());
  return "[" + join(parts, ", ") + "]";
}

std::string text_of(const Selector& selector) {
  if (selector.except.empty() && selector.every == 1 && selector.from == 0) return one_or_list(selector.match);
  std::string out = "{ match = " + one_or_list(selector.match);
  if (!selector.except.empty()) out += ", except = " + one_or_list(selector.except);
  if (selector.every != 1) out += ", every = " + std::to_string(selector.every);
  if (selector.from != 0) out += ", from = " + std::to_string(selector.from);
  return out + " }";
}

}  // namespace

std::string Value::text() const {
  return std::visit([](const auto& value) { return text_of(value); }, data);
}

std::vector<std::string> Value::as_texts() const {
  std::vector<std::string> texts;
  for (const Value& element : as_list()) texts.push_back(element.as_text());
  return texts;
}

std::optional<Amount> parse_amount(std::string_view text) {
  const std::optional<Quantity> quantity = parse_quantity(text);
  if (!quantity) return std::nullopt;
  std::string word = quantity->unit;
  if (word.size() > 2 && word.ends_with('s') && word != "percents") word.pop_back();
  const auto found = kUnits.find(word);
  if (found == kUnits.end()) return std::nullopt;
  const auto [unit, scale] = found->second;
  const double number = quantity->number * kCounts.at(quantity->count) * scale;
  const bool counted = unit == Unit::kSteps || unit == Unit::kTokens || unit == Unit::kSamples;
  if (counted ? number != std::floor(number) : !quantity->count.empty()) return std::nullopt;
  if (number > (unit == Unit::kPercent ? 100 : kMostCounted)) return std::nullopt;
  return Amount{number, unit};
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  const std::optional<Quantity> quantity = parse_quantity(text);
  if (!quantity || !quantity->count.empty() || !kSizes.contains(quantity->unit)) return std::nullopt;
  const double bytes = std::round(quantity->number * kSizes.at(quantity->unit));
  return bytes <= kMostCounted ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt;
}

const char* unit_name(Unit unit) {
  const char* const names[] = {"steps", "epochs", "tokens", "samples", "seconds", "percent"};
  return names[static_cast<size_t>(unit)];
}

std::string number_text(double number) {
  char buffer[40];
  const std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  if (text.find_first_of(".en") == std::string::npos) return text + ".0";
  // 3e-04 is written 3e-4, 1e+06 is written 1e6.
  static const std::regex padding("e\\+?(-?)0*");
  return std::regex_replace(text, padding, "e$1");
}

std::string whole_text(double number) {
  return number == std::floor(number) && std::fabs(number) <= kMostCounted
             ? std::to_string(static_cast<int64_t>(number))
             : number_text(number);
}

std::string amount_text(Amount amount) {
  if (amount.unit == Unit::kPercent) return whole_text(amount.number) + "%";
  std::string unit = unit_name(amount.unit);
  if (amount.number == 1) unit.pop_back();
  std::vector<std::pair<double, std::string>> larger = {{1e9, "B " + unit}, {1e6, "M " + unit}};
  if (amount.unit == Unit::kEpochs) larger.clear();
  if (amount.unit == Unit::kSeconds) unit = "s", larger = {{86400, "d"}, {3600, "h"}, {60, "min"}};
  for (const auto& [scale, word] : larger)
    if (amount.number >= scale && std::fmod(amount.number, scale) == 0)
      return whole_text(amount.number / scale) + " " + word;
  return whole_text(amount.number) + " " + unit;
}

}  // namespace mortise
