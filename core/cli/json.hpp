// JSON as the verbs write it: members in the order they are given, long lists an element a line.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/text.hpp"

namespace mortise::cli {

using Json = nlohmann::ordered_json;

// Of bytes that are no UTF-8 (names of files are any bytes) something readable stays.
inline std::string text_of(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

// {"name":[…,\n…]}
inline std::string list_text(const std::string& name, const std::vector<Json>& elements) {
  std::vector<std::string> texts;
  for (const Json& each : elements) texts.push_back(text_of(each));
  return "{" + text_of(name) + ":[" + join(texts, ",\n") + "]}\n";
}

}  // namespace mortise::cli
