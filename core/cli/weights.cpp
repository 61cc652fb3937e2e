// [model] weights: which files it means, and what their config.json fixes of the model.
#include <algorithm>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/manifest/check.hpp"
#include "formats/huggingface/config.hpp"
#include "formats/huggingface/folder.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

using huggingface::Config;

// Below the current folder as a person would type it.
std::string typed(const fs::path& path) {
  std::error_code error;
  const std::string near = fs::proximate(path, error).string();
  return error || near.starts_with("..") ? path.string() : near;
}

// A model of the hub has two names, OWNER/NAME; a person who wrote one has left out whose it is.
std::string download(const fs::path& named) {
  const std::string shown = typed(named), name = named.filename().string();
  const bool two = !fs::path(shown).is_absolute() && std::ranges::count(shown, '/') == 1;
  return "hf download " + (two ? shell_word(shown) : "OWNER/" + shell_word(name)) + " --local-dir " + shell_word(shown);
}

Diagnostic disagree(const std::string& message, std::vector<Position> at, const std::string& fix) {
  Diagnostic d = mistake("weights_disagree", message, {}, fix);
  d.positions = std::move(at);
  return d;
}

Position place_of(const Config::Setting& s) { return position(s.value.at, s.name); }

// What plugin.toml states for every model of the plugin: a file that says otherwise is of another one.
void refuse_others(const PluginInfo& info, const Config& config, const Position& weights,
                   const std::map<std::string, PluginInfo>& catalogue, Report& report) {
  const auto fits = [&](const auto& plugin) {
    const huggingface::Mapping& theirs = plugin.second.huggingface;
    return theirs.has_config() && config.contradictions(theirs).empty();
  };
  const auto other = std::ranges::find_if(catalogue, fits);
  const std::string fix = other == catalogue.end() ? "other weights, or another model" : "[" + other->first + "]";
  for (const auto& [stated, fixed] : config.contradictions(info.huggingface))
    report.add(disagree(
        "the weights are of " + stated.name + " `" + stated.text + "`; " + info.schema.id + " is `" + fixed + "`",
        {weights, place_of(stated)}, fix));
}

// What nobody reads may make it another model: nothing of the file is passed over in silence.
void refuse_unknown(const PluginInfo& info, const Config& config, const Position& weights, Report& report) {
  const std::vector<Config::Setting> unknown = config.unknown(info.huggingface);
  if (unknown.empty()) return;
  const bool one = unknown.size() == 1;
  const std::string& file = unknown[0].value.at.file;
  Diagnostic d =
      mistake("unknown_config",
              file + (one ? " has a key" : " has keys") + " that " + info.schema.id + " does not know", weights);
  for (const auto& s : unknown) d.lines.push_back(place_of(s).text() + "  " + s.name + " = " + s.text);
  d.effect = "another model would be trained";
  d.fixes = {std::string("a plugin for that model; if ") + (one ? "it changes" : "they change") + " nothing, leave " +
             (one ? "it" : "them") + " out of " + file};
  d.exit = kExitData;
  report.add(std::move(d));
}

// One key of the model: where config.json states it, the default and the preset give way, and the manifest must agree.
// What may change from one step to the next is no matter of the architecture: there the manifest has the last word.
void take_key(const std::string& whole, const KeySchema& schema, const std::vector<std::string>& names, Value& value,
              const Config& config, Report& report) {
  const bool stated = value.is_set() && value.origin.file != schema.default_value.origin.file,
             fixed = schema.change == "fixed";
  std::optional<Value> taken;
  for (const std::string& name : names) {
    const auto found = config.find(name);
    if (!found) continue;
    std::optional<Value> v = check_value(schema, found->value, name, report);
    if (!v) return;
    if (stated && !fixed) continue;
    v->origin = place_of(*found);
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

// What follows from the model's keys, once they are taken.
void refuse_sizes(const PluginInfo& info, const Config& config, const PluginTable& table, const Position& weights,
                  Report& report) {
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : table.values)
    if (value.is_set()) values[key] = value.text();
  for (const auto& [name, size] : sizes_of(info.huggingface, values))
    if (const auto stated = config.find(name); stated && stated->text != std::to_string(size))
      report.add(disagree("the weights are of " + name + " `" + stated->text + "`; " + info.schema.id + " is `" +
                              std::to_string(size) + "`: " + info.huggingface.sizes.at(name),
                          {weights, place_of(*stated)}, "other weights, or another model"));
}

}  // namespace

std::string weights_path(const Value& stated, Report& report) {
  if (!stated.is_set()) return "";
  const fs::path path = stated.as_text();
  const auto refuse = [&](const char* code, const std::string& message, const std::string& fix,
                          const std::string& beside = "") {
    Diagnostic d = mistake(code, message, stated.origin, fix);
    d.beside = beside;
    d.exit = kExitData;
    report.add(std::move(d));
    return std::string();
  };
  std::error_code error;
  if (fs::exists(path / "run.toml", error)) return typed(checkpoint_of(path.string()).path + "/model");
  if (fs::is_regular_file(path, error)) return typed(path);
  const huggingface::Holds holds = huggingface::held_in(path.string());
  if (holds == huggingface::Holds::kWeights) return typed(path);
  if (!fs::is_directory(path, error))
    return refuse("no_weights", "`" + typed(path) + "` is not a folder",
                  "Mortise does not download. Get it with: " + download(path), "looked at " + path.string());
  if (holds == huggingface::Holds::kPickles)
    return refuse("pickle_only", typed(path) + " holds " + huggingface::kPickleFile + " only; Mortise reads no pickles",
                  huggingface::conversion(typed(path)));
  return refuse("no_weights", typed(path) + " holds no " + huggingface::kWeightsFile,
                std::string("a folder with ") + huggingface::kWeightsFile + ", or a run directory");
}

namespace {

// A plugin of the plan that says which key names its file (facts [tokenizer] path and file); NULL: there is none.
struct TokenizerFile {
  Value* key = nullptr;
  std::string file;
  bool is_in(const fs::path& folder) const {
    std::error_code error;
    return fs::is_regular_file(folder / file, error);
  }
};

// Of whoever provides the point at last; NULL: nobody does.
const PluginInfo* last_provider(const Plan& plan, int point) {
  const auto& claims = plan.at[point].providers;
  return claims.empty() ? nullptr : plan.members[static_cast<size_t>(claims.back().member)].info;
}

// The key that a fact of plugin.toml names, in the plugin's table; NULL: there is no such fact.
Value* key_of_fact(Manifest& manifest, const PluginInfo& info, const std::string& table, const std::string& fact) {
  const Value* key = fact_of(info, table, fact);
  const auto own =
      std::ranges::find(manifest.plugins, info.schema.id, [](const PluginTable& t) { return t.schema->id; });
  return key && own != manifest.plugins.end() ? &own->values[key->as_text()] : nullptr;
}

TokenizerFile tokenizer_file(const Plan& plan, Manifest& manifest) {
  const PluginInfo* info = last_provider(plan, kTokenizer);
  const Value* file = info ? fact_of(*info, "tokenizer", "file") : nullptr;
  if (!file) return {};
  return {key_of_fact(manifest, *info, "tokenizer", "path"), file->as_text()};
}

}  // namespace

void take_tokenizer(const std::string& weights, const Plan& plan, Manifest& manifest) {
  const TokenizerFile wanted = tokenizer_file(plan, manifest);
  if (!wanted.key || wanted.key->is_set() || !wanted.is_in(weights)) return;
  *wanted.key = {fs::absolute(weights).lexically_normal().string(), manifest.get("model", "weights").origin};
}

// What the weights call their classes, in their order, is what a plugin that names a key for them (fact [data] classes)
// calls them. Only where the key that makes them count, fact [data] label, has a value.
void take_classes(const std::string& weights, const Plan& plan, Manifest& manifest, Report& report) {
  const PluginInfo *model = last_provider(plan, kModel), *data = last_provider(plan, kData);
  std::error_code error;
  if (!model || model->huggingface.classes.empty() || !data) return;
  if (!fs::exists(fs::path(weights) / huggingface::kConfigFile, error)) return;
  Value* classes = key_of_fact(manifest, *data, "data", "classes");
  const Value* label = key_of_fact(manifest, *data, "data", "label");
  if (!classes || !label || !label->is_set()) return;
  const std::vector<std::string> theirs = Config::of_folder(weights).classes();
  const Position at{weights + "/" + huggingface::kConfigFile, 0, 0, "id2label"};
  if (theirs.empty()) return;
  if (!classes->is_set()) {
    std::vector<Value> all;
    for (const std::string& name : theirs) all.push_back({name, at});
    *classes = {std::move(all), at};
    return;
  }
  const std::vector<std::string> ours = classes->as_texts();
  if (ours != theirs && std::ranges::is_permutation(ours, theirs))
    report.add(disagree(data->schema.id + "." + fact_of(*data, "data", "classes")->as_text() + " is " +
                            classes->text() + ", the weights have these in another order: " + join(theirs, ", "),
                        {classes->origin, at}, "leave it out: the weights fix it"));
}

void take_own_tokenizer(const std::string& dir, const Plan& plan, Manifest& manifest, Report& report) {
  const TokenizerFile wanted = tokenizer_file(plan, manifest);
  const fs::path own = fs::path(dir) / "checkpoints/latest/model";
  if (!wanted.key || !wanted.key->is_set() || !wanted.is_in(own)) return;
  const std::string path = wanted.key->as_text();
  std::error_code error;
  if (fs::is_regular_file(path, error) || wanted.is_in(path)) return;
  report.add(as_warning(mistake("tokenizer_moved", path + " is no longer there", wanted.key->origin),
                        "the one that the run saved is read: " + own.string()));
  wanted.key->data = fs::absolute(own).lexically_normal().string();
}

void take_architecture(const std::string& weights, const std::string& model,
                       const std::map<std::string, PluginInfo>& catalogue, Manifest& manifest, Report& report) {
  std::error_code error;
  if (!fs::exists(fs::path(weights) / huggingface::kConfigFile, error)) return;
  const Position at = manifest.get("model", "weights").origin;
  try {
    const Config config = Config::of_folder(weights);
    const PluginInfo& info = catalogue.at(model);
    refuse_others(info, config, at, catalogue, report);
    const auto table = std::ranges::find(manifest.plugins, model, [](const PluginTable& t) { return t.schema->id; });
    if (table == manifest.plugins.end() || report.has_errors()) return;
    refuse_unknown(info, config, at, report);
    for (const auto& [key, names] : info.huggingface.keys)
      take_key(model + "." + key, info.schema.config.keys.at(key), names, table->values[key], config, report);
    refuse_sizes(info, config, *table, at, report);
  } catch (const FormatError& e) {
    Diagnostic d = mistake(e.code, e.path + " " + e.message, at, "a folder as save_pretrained writes it");
    d.exit = kExitData;
    report.add(std::move(d));
  }
}

}  // namespace mortise::cli
