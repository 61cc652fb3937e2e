// JSON that comes from anywhere.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace mortise::huggingface {

using Json = nlohmann::json;

// What is no JSON, or nested so deeply that printing it would end the process, is no object either.
inline Json parse_json(std::string_view text) {
  constexpr int kMostNesting = 64;
  bool too_deep = false;
  const auto nested = [&](int depth, Json::parse_event_t, Json&) {
    return !(too_deep = too_deep || depth > kMostNesting);
  };
  const Json parsed = Json::parse(text, nested, /*allow_exceptions=*/false);
  return too_deep ? Json() : parsed;
}

}  // namespace mortise::huggingface
