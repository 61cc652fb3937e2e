#include "formats/huggingface/config.hpp"

#include <algorithm>
#include <filesystem>

#include "formats/huggingface/bookkeeping.hpp"

namespace mortise::huggingface {
namespace {

constexpr const char *kArchitectures = "architectures", *kModelType = "model_type", *kVocabulary = "vocab_size",
                     *kDtype = "torch_dtype", *kDiffer = "parameters_differ", *kMerge = "parameters_merge";
constexpr size_t kMostBytes = size_t{16} << 20, kMostText = 80, kMostDifferences = 8;

// Element types of weights as safetensors and as torch call them.
constexpr std::pair<const char*, const char*> kTorchTypes[] = {
    {"F64", "float64"},   {"F32", "float32"},           {"F16", "float16"},
    {"BF16", "bfloat16"}, {"F8_E4M3", "float8_e4m3fn"}, {"F8_E5M2", "float8_e5m2"}};

Json json_of(const TomlNode& node) {
  const auto convert = [](const auto& value) -> Json {
    using T = std::decay_t<decltype(value)>;
    Json all = Json::object();
    if constexpr (std::is_same_v<T, TomlTable>) {
      for (const TomlEntry& entry : value.entries) all[entry.key] = json_of(entry.value);
      return all;
    } else if constexpr (std::is_same_v<T, TomlList>) {
      all = Json::array();
      for (const TomlNode& each : value) all.push_back(json_of(each));
      return all;
    } else {
      return value;
    }
  };
  return std::visit(convert, node.data);
}

std::string text_of(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (value.is_string()) text = text.substr(1, text.size() - 2);
  return text.size() <= kMostText ? text : text.substr(0, kMostText) + "…";
}

std::vector<std::string> texts_of(const Json& values, const char* name) {
  const auto found = values.find(name);
  std::vector<std::string> texts;
  for (const Json& each : found != values.end() && found->is_array() ? *found : Json::array())
    if (each.is_string()) texts.push_back(each.get<std::string>());
  return texts;
}

// Of the keys of the outermost object. The text is JSON.
std::map<std::string, int> lines_of_keys(std::string_view text) {
  std::map<std::string, int> lines;
  int line = 1, depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    line += text[i] == '\n';
    depth += text[i] == '{' || text[i] == '[';
    depth -= text[i] == '}' || text[i] == ']';
    if (text[i] != '"') continue;
    const size_t begin = i++;
    for (; text[i] != '"'; ++i) i += text[i] == '\\';
    const size_t next = text.find_first_not_of(" \t\r\n", i + 1);
    if (depth == 1 && next != text.npos && text[next] == ':')
      lines[Json::parse(text.substr(begin, i + 1 - begin)).get<std::string>()] = line;
  }
  return lines;
}

// "a.b" is `b` of the object `a`. A key that has a dot itself is found by no name.
const Json* find_in(const Json& values, const std::string& name) {
  const size_t dot = name.find('.');
  const auto found = values.find(name.substr(0, dot));
  if (found == values.end()) return nullptr;
  if (dot == name.npos) return &*found;
  return found->is_object() ? find_in(*found, name.substr(dot + 1)) : nullptr;
}
Json& place_in(Json& values, const std::string& name) {
  const size_t dot = name.find('.');
  Json& here = values[name.substr(0, dot)];
  return dot == name.npos ? here : place_in(here, name.substr(dot + 1));
}

// As transformers calls a class that has no name.
std::string unnamed_class(size_t i) { return "LABEL_" + std::to_string(i); }

// As many as the model's key counts.
void name_classes(Json& all, const Mapping& mapping, const std::map<std::string, std::string>& values,
                  const std::vector<std::string>& classes) {
  const auto found = values.find(mapping.classes);
  const Json count = found == values.end() ? Json() : parse_json(found->second);
  if (!count.is_number_unsigned()) return;
  for (size_t i = 0; i < count.get<size_t>(); ++i) {
    const std::string number = std::to_string(i), name = i < classes.size() ? classes[i] : unnamed_class(i);
    all[kIdToLabel][number] = name;
    all[kLabelToId][name] = i;
  }
}

// The architecture of the mapping, or what differs from it.
void claim_architecture(Json& all, const Mapping& mapping, const std::map<std::string, std::string>& values,
                        const std::map<std::string, Sizes>& parameters) {
  if (mapping.architectures.empty()) return;
  std::vector<std::string> differ = differences(mapping, values, parameters);
  if (differ.empty()) {
    all[kArchitectures] = mapping.architectures;
    return;
  }
  all.erase(kModelType);  // by which readers choose a class where none is named
  if (const size_t n = differ.size(); n > kMostDifferences) {
    differ.resize(kMostDifferences);
    differ.push_back(std::to_string(n - kMostDifferences) + " more differ");
  }
  all[kDiffer] = differ;
}

}  // namespace

Config::Config(std::string path, std::string_view text) : path_(std::move(path)) {
  std::string twice;
  if (text.size() <= kMostBytes) values_ = parse_json(text, &twice);
  if (!values_.is_object()) throw FormatError("bad_config_json", path_, "is no JSON object");
  if (!twice.empty()) throw FormatError("bad_config_json", path_, "has `" + text_of(twice) + "` twice");
  lines_ = lines_of_keys(text);
}

Config Config::of_folder(const std::string& folder) {
  const std::string path = folder + "/" + kConfigFile;
  return {path, MappedFile(path).bytes()};
}

Beside beside_in(const std::string& folder) {
  if (folder.empty()) return {};
  const auto text_of_file = [&](const char* name) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) ? std::string(MappedFile(path).bytes()) : "";
  };
  Beside all;
  if (const std::string text = text_of_file(kConfigFile); !text.empty())
    all.tokens = Config(folder + "/" + kConfigFile, text).tokens();
  all.generation = text_of_file(kGenerationFile);
  if (!all.generation.empty() && !parse_json(all.generation).is_object())
    throw FormatError("bad_config_json", folder + "/" + kGenerationFile, "is no JSON object");
  return all;
}

std::map<std::string, std::string> Config::tokens() const {
  std::map<std::string, std::string> all;
  for (const auto& [name, id] : values_.items())
    if (name.ends_with("_token_id") && !id.is_null()) all[name] = id.dump();
  return all;
}

Config::Setting Config::setting(const std::string& name, const Json& value) const {
  Setting s{name, {}, text_of(value)};
  const auto line = lines_.find(name), outer = lines_.find(name.substr(0, name.find('.')));
  s.value.at = {path_, line != lines_.end() ? line->second : outer->second, 0};
  if (value.is_boolean()) s.value.data = value.get<bool>();
  else if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) s.value.data = value.get<double>();
  else if (value.is_number_integer()) s.value.data = value.get<int64_t>();
  else if (value.is_number()) s.value.data = value.get<double>();
  else s.value.data = value.is_string() ? value.get<std::string>() : s.text;
  return s;
}

std::optional<Config::Setting> Config::find(const std::string& name) const {
  const Json* found = find_in(values_, name);
  return !found || found->is_null() ? std::nullopt : std::optional(setting(name, *found));
}

std::vector<std::string> Config::classes() const {
  const auto names = values_.find(kIdToLabel);
  std::vector<std::string> all;
  bool is_named = false;
  for (size_t i = 0; names != values_.end() && names->is_object() && i < names->size(); ++i) {
    const auto name = names->find(std::to_string(i));
    const std::string text = name != names->end() && name->is_string() ? name->get<std::string>() : "";
    if (text.empty() || std::ranges::find(all, text) != all.end()) return {};
    all.push_back(text);
    is_named |= all.back() != unnamed_class(i);
  }
  return is_named ? all : std::vector<std::string>();
}

std::vector<Config::Contradiction> Config::contradictions(const Mapping& mapping) const {
  std::vector<Contradiction> all;
  for (const auto& [name, fixed] : mapping.fixed) {
    const Json* found = find_in(values_, name);
    const Json own = json_of(fixed);
    if (!found || *found == own || (found->is_null() && own == false)) continue;  // null is Python's None
    all.push_back({setting(name, *found), text_of(own)});
  }
  return all;
}

std::vector<Config::Setting> Config::unknown(const Mapping& mapping) const {
  std::vector<Setting> all;
  add_unknown(mapping, "", values_, all);
  return all;
}

void Config::add_unknown(const Mapping& mapping, const std::string& within, const Json& object,
                         std::vector<Setting>& all) const {
  for (const auto& [key, value] : object.items()) {
    const std::string name = within + key;
    const bool has_dot = key.find('.') != key.npos;
    if (value.is_null() || value == false || (!has_dot && mapping.knows(name))) continue;
    if (value.is_object() && !has_dot && mapping.knows_within(name)) add_unknown(mapping, name + ".", value, all);
    else all.push_back(setting(name, value));
  }
}

std::string Config::architecture() const {
  const std::vector<std::string> all = texts_of(values_, kArchitectures);
  return all.empty() ? "" : all[0];
}

std::vector<std::string> Config::differences() const { return texts_of(values_, kDiffer); }

std::string Config::text_for(const std::string& dtype) const {
  Json all = values_;
  const auto torch = std::ranges::find(kTorchTypes, dtype, [](const auto& t) { return t.first; });
  if (torch != std::end(kTorchTypes)) all[kDtype] = torch->second;
  return all.dump(2) + "\n";
}

void Config::refuse_merge() const {
  throw FormatError("bad_config_json", path_, std::string("does not say what `") + kMerge + "` is");
}

std::vector<Product> Config::products() const {
  std::vector<Product> all;
  const Json* found = find_in(values_, std::string(kMerge) + ".products");
  try {
    for (const Json& p : found ? *found : Json::array())
      all.push_back({p.at("into"), p.at("left"), p.at("right"), p.at("scale"), p.at("transposed")});
  } catch (const Json::exception&) {
    refuse_merge();
  }
  return all;
}

Added Config::added() const {
  Added all;
  all.products = products();
  if (all.products.empty()) return all;
  try {
    const Json& merge = values_.at(kMerge);
    all.learned = merge.at("learned").get<std::vector<std::string>>();
    all.tied = merge.value("tied", std::vector<std::string>());
    if (const Json& prefix = merge.at("prefix"); !prefix.is_null()) all.prefix = prefix.get<std::string>();
    for (const Json& each : merge.at("settings")) {
      auto& settings = all.settings.emplace_back();
      for (const auto& [key, value] : each.items()) settings[key] = value.dump();
    }
  } catch (const Json::exception&) {
    refuse_merge();
  }
  return all;
}

Config Config::merged() const {
  const Json* found = find_in(values_, std::string(kMerge) + ".config");
  return found ? Config(path_, found->dump()) : *this;
}

std::string config_text(const Mapping& every, const std::map<std::string, std::string>& values,
                        const std::map<std::string, Sizes>& parameters, const std::vector<std::string>& classes,
                        const Added& added, const std::map<std::string, std::string>& tokens) {
  const Mapping mapping = every.chosen(values);
  Json all = Json::object();
  for (const auto& [name, value] : mapping.fixed) place_in(all, name) = json_of(value);
  for (const auto& [key, names] : mapping.keys)
    if (const auto value = values.find(key); value != values.end())
      for (const std::string& name : names) place_in(all, name) = parse_json(value->second);
  if (!mapping.classes.empty()) name_classes(all, mapping, values, classes);
  // A vocabulary that ends before a token has none such: null, which readers take for none, where they would put their
  // own default in place of a missing key.
  const Json size = all.value(kVocabulary, Json());
  const auto is_there = [&](const Json& id) { return !size.is_number() || !id.is_number() || size > id; };
  for (const auto& [name, id] : mapping.tokens) all[name] = is_there(id) ? Json(id) : Json();
  for (const auto& [name, id] : tokens)
    if (const Json own = parse_json(id); is_there(own)) all[name] = own;
  Json merged = added.products.empty() ? Json() : all;
  claim_architecture(all, mapping, values, parameters);
  if (added.products.empty()) return all.dump(2) + "\n";
  std::map<std::string, Sizes> own = parameters;
  for (const Product& p : added.products) {
    own.erase(p.left);
    own.erase(p.right);
    all[kMerge]["products"].push_back(
        {{"into", p.into}, {"left", p.left}, {"right", p.right}, {"scale", p.scale}, {"transposed", p.transposed}});
  }
  claim_architecture(merged, mapping, values, own);
  all[kMerge]["config"] = merged;
  all[kMerge]["learned"] = added.learned;
  all[kMerge]["tied"] = added.tied;
  all[kMerge]["prefix"] = added.prefix ? Json(*added.prefix) : Json();
  all[kMerge]["settings"] = Json::array();
  for (const auto& each : added.settings) {
    Json& settings = all[kMerge]["settings"].emplace_back(Json::object());
    for (const auto& [key, value] : each) settings[key] = parse_json(value);
  }
  return all.dump(2) + "\n";
}

}  // namespace mortise::huggingface
