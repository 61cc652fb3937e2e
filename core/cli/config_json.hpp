// The config.json of a Hugging Face folder: what it says, and where.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/manifest/schema.hpp"

namespace mortise::cli {

class ConfigJson {
 public:
  ConfigJson(const std::string& path, std::string shown);
  bool is_object() const { return values_.is_object(); }
  // NULL if the file does not say it.
  const nlohmann::json* find(const std::string& name) const;
  // What the schema makes of what stands under `name`; nothing, and a diagnostic, if it cannot be a value of that type.
  std::optional<Value> value(const std::string& name, const KeySchema& schema, Report& report) const;
  Position position(const std::string& name) const;

 private:
  std::string shown_, text_;
  nlohmann::json values_;
};

}  // namespace mortise::cli
