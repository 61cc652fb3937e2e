#include "core/cli/config_json.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/manifest/check.hpp"

namespace mortise::cli {

ConfigJson::ConfigJson(const std::string& path, std::string shown) : shown_(std::move(shown)) {
  std::ifstream in(path, std::ios::binary);
  text_.assign(std::istreambuf_iterator<char>(in), {});
  values_ = nlohmann::json::parse(text_, nullptr, /*allow_exceptions=*/false);
}

const nlohmann::json* ConfigJson::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<Value> ConfigJson::value(const std::string& name, const KeySchema& schema, Report& report) const {
  const nlohmann::json& j = *find(name);
  const Position at = position(name);
  TomlNode node;
  node.at = {at.file, at.line, at.column};
  if (j.is_boolean()) node.data = j.get<bool>();
  else if (j.is_number_integer()) node.data = j.get<int64_t>();
  else if (j.is_number()) node.data = j.get<double>();
  else node.data = j.is_string() ? j.get<std::string>() : j.dump();
  std::optional<Value> v = check_value(schema, node, name, report);
  if (v) v->origin = at;
  return v;
}

Position ConfigJson::position(const std::string& name) const {
  const size_t found = text_.find("\"" + name + "\"");
  const auto end = text_.begin() + static_cast<ptrdiff_t>(std::min(found, text_.size()));
  return {shown_, found == std::string::npos ? 0 : static_cast<int>(std::count(text_.begin(), end, '\n')) + 1, 0, name};
}

}  // namespace mortise::cli
