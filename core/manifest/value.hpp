// Values of a manifest, with where each came from, and the numbers with units that people write.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/diagnostic.hpp"

namespace mortise {

// Numbered as in sdk/include/mortise/abi.h.
enum class Unit : uint32_t { kSteps = 0, kEpochs = 1, kTokens = 2, kSamples = 3, kSeconds = 4, kPercent = 5 };
struct Amount {
  double number = 0;
  Unit unit = Unit::kSteps;
};

// A `where`: globs over paths and the atoms role: tag: slot: dim:. An element is selected when any of `match` matches
// and none of `except`, then every `every`-th of those, beginning with number `from`.
struct Selector {
  std::vector<std::string> match, except;
  int every = 1, from = 0;
  Position origin;
};

struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, Amount, std::vector<Value>, Selector> data;
  Position origin;        // of the value itself; file is "default.toml", "plugin.toml of FAMILY.NAME", "preset gpt2", …
  std::string glob = {};  // of a path in a list: the absolute pattern that it matches, if one was written
  bool is_set() const { return data.index() != 0; }
  bool as_bool() const { return std::get<bool>(data); }
  int64_t as_int() const { return std::get<int64_t>(data); }
  double as_float() const { return std::get<double>(data); }
  const std::string& as_text() const { return std::get<std::string>(data); }
  Amount as_amount() const { return std::get<Amount>(data); }
  const std::vector<Value>& as_list() const { return std::get<std::vector<Value>>(data); }
  const Selector& as_selector() const { return std::get<Selector>(data); }
  std::vector<std::string> as_texts() const;  // of a list of texts
  std::string text() const;                   // as TOML: 3e-4, "x", [1, 2]
};

std::optional<Amount> parse_amount(
    std::string_view text);  // "10 B tokens", "30 min", "3%": every unit; which ones a key takes is its schema's
std::optional<int64_t> parse_bytes(std::string_view text);  // "16 GiB"
std::string amount_text(Amount amount);                     // what parse_amount reads
const char* unit_name(Unit unit);                           // "steps", "seconds", …
std::string number_text(double number);                     // the shortest that reads back: 3e-4, 0.1, 10.0
std::string whole_text(double number);                      // the same, of a whole number without a point: 10

}  // namespace mortise
