// Numbers with units, as people write them: "10 B tokens", "30 min", "3%", "16 GiB".
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/manifest/value.hpp"

namespace mortise {

std::optional<Amount> parse_amount(std::string_view text);  // every unit; which ones a key takes is its schema's
std::optional<int64_t> parse_bytes(std::string_view text);
std::string amount_text(Amount amount);  // what parse_amount reads: "10 B tokens"
const char* unit_name(Unit unit);        // "steps", "seconds", …
std::string number_text(double number);  // the shortest that reads back: 3e-4, 0.1, 10.0

}  // namespace mortise
