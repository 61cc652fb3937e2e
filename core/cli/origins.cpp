// Where each value of a run came from, kept beside its run.toml.
#include <algorithm>

#include "core/cli/json.hpp"
#include "core/cli/run_directory.hpp"

namespace mortise::cli {
namespace {

// Calls visit(name, what it says, where that is from) for every table and value of a manifest.
template <class M, class Visit>
void each_origin(M& m, Visit visit) {
  for (auto& [table, values] : m.tables)
    for (auto& [key, v] : values) visit(table + "." + key, v.text(), v.origin);
  for (auto& t : m.plugins) {
    visit(t.schema->id, t.enabled ? "on" : "off", t.origin);
    for (auto& [key, v] : t.values) visit(t.schema->id + "." + key, v.text(), v.origin);
  }
  for (auto& r : m.rules) {
    const std::string name = "parameters." + r.name;
    visit(name, "on", r.origin);
    for (auto& [key, v] : r.values) visit(name + "." + key, v.text(), v.origin);
  }
}

// The stored place of what says the same; NULL if it says something else by now, or was written by nobody of ours.
const Json* stored(const Json& values, const std::string& name, const std::string& text) {
  const auto found = values.find(name);
  if (found == values.end() || !found->is_array() || found->size() != 4) return nullptr;
  const bool sound = (*found)[0].is_string() && (*found)[1].is_string() && (*found)[2].is_number_integer() &&
                     (*found)[3].is_number_integer();
  return sound && (*found)[0] == text ? &*found : nullptr;
}

}  // namespace

std::string origins_json(const Manifest& manifest) {
  Json values = Json::object();
  each_origin(manifest, [&](const std::string& name, const std::string& text, const Position& at) {
    if (at) values[name] = {text, at.file, at.line, at.column};
  });
  return text_of({{"layers", manifest.layers}, {"values", values}}) + "\n";
}

void restore_origins(Manifest& manifest, std::string_view origins) {
  const Json all = Json::parse(origins, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("values") || !all["values"].is_object()) return;
  each_origin(manifest, [&](const std::string& name, const std::string& text, Position& at) {
    if (at.file != manifest.path) return;
    if (const Json* found = stored(all["values"], name, text)) at = {(*found)[1], (*found)[2], (*found)[3], at.key};
  });
  std::vector<std::string> layers;
  if (all.contains("layers") && all["layers"].is_array())
    for (const Json& layer : all["layers"])
      if (layer.is_string()) layers.push_back(layer);
  if (layers.empty()) return;
  const bool by_command = !manifest.layers.empty() && manifest.layers.back() == kCommandLine;
  if (by_command && layers.back() != kCommandLine) layers.push_back(kCommandLine);
  manifest.layers = std::move(layers);
}

}  // namespace mortise::cli
