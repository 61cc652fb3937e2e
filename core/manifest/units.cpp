#include "core/manifest/units.hpp"

#include <charconv>
#include <cmath>

namespace mortise {
namespace {

struct UnitWord {
  std::string_view word;
  Unit unit;
  double scale;
};

constexpr UnitWord kUnits[] = {
    {"step", Unit::kSteps, 1}, {"epoch", Unit::kEpochs, 1}, {"token", Unit::kTokens, 1}, {"sample", Unit::kSamples, 1}, {"%", Unit::kPercent, 1},
    {"s", Unit::kSeconds, 1},  {"min", Unit::kSeconds, 60}, {"h", Unit::kSeconds, 3600}, {"d", Unit::kSeconds, 86400},
};

struct SizeWord {
  std::string_view word;
  double scale;
};

constexpr SizeWord kCounts[] = {{"K", 1e3}, {"M", 1e6}, {"B", 1e9}};
constexpr SizeWord kSizes[] = {
    {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
};

// Beyond this, whole numbers have gaps in a double.
constexpr double kMostCounted = 0x1p53;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void skip_spaces(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
}

// An unsigned number at the beginning of `text`: 10, 10_000, 0.5, 1e6.
std::optional<double> take_number(std::string_view& text) {
  std::string digits;
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at], next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (c == '_' && at > 0 && is_digit(text[at - 1]) && is_digit(next)) continue;
    // The e of "1e6", not that of "1epoch".
    const bool exponent = c == 'e' && (is_digit(next) || (next == '-' || next == '+'));
    const bool sign = (c == '-' || c == '+') && at > 0 && text[at - 1] == 'e';
    if (!is_digit(c) && c != '.' && !exponent && !sign) break;
    digits += c;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || !is_digit(digits[0])) return std::nullopt;
  text.remove_prefix(at);
  return number;
}

std::string_view take_word(std::string_view& text) {
  skip_spaces(text);
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  skip_spaces(text);
  return word;
}

}  // namespace

std::optional<Amount> parse_amount(std::string_view text) {
  skip_spaces(text);
  const std::optional<double> number = take_number(text);
  if (!number) return std::nullopt;
  std::string_view word = take_word(text);
  double scale = 1;
  for (const SizeWord& count : kCounts) {
    if (word != count.word) continue;
    scale = count.scale;
    word = take_word(text);
    break;
  }
  if (!text.empty()) return std::nullopt;
  if (word.size() > 4 && word.ends_with('s')) word.remove_suffix(1);  // steps, not min
  for (const UnitWord& unit : kUnits) {
    if (unit.word != word) continue;
    const bool counted = unit.unit == Unit::kSteps || unit.unit == Unit::kTokens || unit.unit == Unit::kSamples;
    if (scale != 1 && !counted) return std::nullopt;
    const double value = *number * scale * unit.scale;
    if (!(value <= kMostCounted) || (counted && value != std::floor(value))) return std::nullopt;
    if (unit.unit == Unit::kPercent && value > 100) return std::nullopt;
    return Amount{value, unit.unit};
  }
  return std::nullopt;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  skip_spaces(text);
  const std::optional<double> number = take_number(text);
  if (!number) return std::nullopt;
  const std::string_view word = take_word(text);
  if (!text.empty()) return std::nullopt;
  for (const SizeWord& size : kSizes) {
    if (size.word != word) continue;
    const double bytes = std::round(*number * size.scale);
    if (!(bytes <= kMostCounted)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

const char* unit_name(Unit unit) {
  const char* const names[] = {"steps", "epochs", "tokens", "samples", "seconds", "percent"};
  return names[static_cast<size_t>(unit)];
}

std::string number_text(double number) {
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text.find_first_of(".n") == std::string::npos ? text + ".0" : text;
  // 3e-04 is written 3e-4, 1e+06 is written 1e6.
  const bool negative = text[exponent + 1] == '-';
  const size_t digits = text.find_first_not_of("+-0", exponent + 1);
  return text.substr(0, exponent + 1) + (negative ? "-" : "") + text.substr(digits);
}

std::string amount_text(Amount amount) {
  double number = amount.number;
  std::string unit = unit_name(amount.unit);
  if (amount.unit == Unit::kSeconds) {
    unit = "s";
    for (const auto& [word, scale] : {std::pair{"d", 86400.0}, {"h", 3600.0}, {"min", 60.0}})
      if (unit == "s" && number >= scale && std::fmod(number, scale) == 0) number /= scale, unit = word;
  } else if (amount.unit != Unit::kPercent) {
    if (number == 1) unit.pop_back();
    for (const auto& [word, scale] : {std::pair{"B ", 1e9}, {"M ", 1e6}})
      if (number >= scale && std::fmod(number, scale) == 0 && amount.unit != Unit::kEpochs) number /= scale, unit.insert(0, word);
  }
  std::string digits = number == std::floor(number) ? std::to_string(static_cast<int64_t>(number)) : number_text(number);
  return digits + (amount.unit == Unit::kPercent ? "%" : " " + unit);
}

}  // namespace mortise
