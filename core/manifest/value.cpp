#include "core/manifest/value.hpp"

#include <cmath>

#include "core/base/text.hpp"
#include "core/manifest/units.hpp"

namespace mortise {
namespace {

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
  return bare ? std::to_string(static_cast<int64_t>(amount.number)) : json_string(amount_text(amount));
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

}  // namespace mortise
