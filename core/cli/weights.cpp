// [model] weights: which files it means, and what their config.json fixes of the model.
#include <algorithm>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/config_json.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

using Json = nlohmann::json;

// Below the current folder as a person would type it.
std::string typed(const fs::path& path) {
  std::error_code error;
  const std::string near = fs::proximate(path, error).string();
  return error || near.starts_with("..") ? path.string() : near;
}

std::string text_of(const Json& j) { return j.is_string() ? j.get<std::string>() : j.dump(); }

Diagnostic disagree(const std::string& message, std::vector<Position> at, const std::string& fix) {
  Diagnostic d = mistake("weights_disagree", message, {}, fix);
  d.positions = std::move(at);
  return d;
}

// What plugin.toml states for every model of the plugin: a file that says otherwise is of another one. False if it is.
bool is_of(const PluginInfo& info, const ConfigJson& config, const Position& weights,
           const std::map<std::string, PluginInfo>& catalogue, Report& report) {
  const auto facts = info.facts.find("config_json");
  if (facts == info.facts.end()) return false;
  for (const auto& [name, fact] : facts->second) {
    const Json* found = config.find(name);
    const Json ours = Json::parse(fact.text());
    if (!found || *found == ours) continue;
    std::string fix = "other weights, or another model";
    for (const auto& [id, other] : catalogue)
      if (const Value* theirs = fact_of(other, "config_json", name);
          name == "model_type" && theirs && Json::parse(theirs->text()) == *found)
        fix = "[" + id + "]";
    report.add(disagree("the weights are of " + name + " `" + escape_control(text_of(*found)) + "`; " + info.schema.id +
                            " is `" + text_of(ours) + "`",
                        {weights, config.position(name)}, fix));
  }
  return !report.has_errors();
}

// One key of the model: where config.json states it, the default and the preset give way, and the manifest must agree.
// What may change from one step to the next is no matter of the architecture: there the manifest has the last word.
void take_key(const std::string& whole, const KeySchema& schema, Value& value, const ConfigJson& config,
              Report& report) {
  const bool stated = value.is_set() && value.origin.file != schema.default_value.origin.file,
             fixed = schema.change == "fixed";
  if (stated && !fixed) return;
  std::optional<Value> taken;
  for (const std::string& name : schema.config_json) {
    if (!config.find(name)) continue;
    const std::optional<Value> v = config.value(name, schema, report);
    if (!v) return;
    if (taken && taken->text() != v->text())
      return report.add(disagree("the weights have " + taken->origin.key + " " + taken->text() + " and " + name + " " +
                                     v->text() + "; both are `" + whole + "`",
                                 {taken->origin, v->origin},
                                 fixed ? "other weights" : schema.name + " = " + taken->text()));
    if (!taken) taken = v;
  }
  if (!taken) return;
  if (stated && value.text() != taken->text())
    return report.add(disagree(whole + " is " + value.text() + ", the weights are of " + taken->text(),
                               {value.origin, taken->origin}, "leave it out: the weights fix it"));
  if (!stated) value = *taken;
}

}  // namespace

std::string weights_path(const Value& stated, Report& report) {
  if (!stated.is_set()) return "";
  const fs::path path = stated.as_text();
  const auto refuse = [&](const char* code, const std::string& message, const std::string& fix) {
    Diagnostic d = mistake(code, message, stated.origin, fix);
    d.exit = kExitData;
    report.add(std::move(d));
    return std::string();
  };
  std::error_code error;
  if (fs::exists(path / "run.toml", error)) return typed(checkpoint_of(path.string()).path + "/model");
  for (const fs::path& file : {path, path / "model.safetensors", path / "model.safetensors.index.json"})
    if (fs::is_regular_file(file, error)) return typed(path);
  if (!fs::is_directory(path, error))
    return refuse("no_weights", "`" + typed(path) + "` is not a folder",
                  "Mortise does not download: hf download NAME --local-dir " + shell_word(typed(path)));
  if (fs::exists(path / "pytorch_model.bin", error) || fs::exists(path / "pytorch_model.bin.index.json", error))
    return refuse("pickle_only", typed(path) + " holds pytorch_model.bin only; Mortise reads no pickles",
                  "python -c 'from transformers import AutoModel as A; A.from_pretrained(\"" + typed(path) +
                      "\").save_pretrained(\"" + typed(path) + "\")'");
  return refuse("no_weights", typed(path) + " holds no model.safetensors",
                "a folder with model.safetensors, or a run directory");
}

void take_architecture(const std::string& weights, const std::string& model,
                       const std::map<std::string, PluginInfo>& catalogue, Manifest& manifest, Report& report) {
  const std::string file = weights + "/config.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return;
  const ConfigJson config(file, typed(file));
  const Position at = manifest.get("model", "weights").origin;
  if (!config.is_object()) {
    Diagnostic d =
        mistake("bad_config_json", typed(file) + " is no JSON object", at, "a folder as save_pretrained writes it");
    d.exit = kExitData;
    return report.add(std::move(d));
  }
  const auto table = std::ranges::find(manifest.plugins, model, [](const PluginTable& t) { return t.schema->id; });
  if (table == manifest.plugins.end() || !is_of(catalogue.at(model), config, at, catalogue, report)) return;
  for (const auto& [key, schema] : table->schema->config.keys)
    take_key(model + "." + key, schema, table->values[key], config, report);
}

}  // namespace mortise::cli
