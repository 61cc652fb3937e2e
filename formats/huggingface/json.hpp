// JSON that comes from anywhere.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace mortise::huggingface {

using Json = nlohmann::json;

// What is no JSON, or nested so deeply that printing it would end the process, is no object either. `twice` becomes a
// key that an object has twice, of which readers take one or the other.
inline Json parse_json(std::string_view text, std::string* twice = nullptr) {
  constexpr int kMostNesting = 64;
  bool too_deep = false;
  std::map<int, std::set<std::string>> keys;  // of the object that is open at a depth
  const auto nested = [&](int depth, Json::parse_event_t event, Json& value) {
    if (twice && event == Json::parse_event_t::object_start) keys[depth + 1].clear();
    if (twice && event == Json::parse_event_t::key && !keys[depth].insert(value).second) *twice = value;
    return !(too_deep = too_deep || depth > kMostNesting);
  };
  const Json parsed = Json::parse(text, nested, /*allow_exceptions=*/false);
  return too_deep ? Json() : parsed;
}

}  // namespace mortise::huggingface
