#include "formats/huggingface/mapping.hpp"

#include <algorithm>

#include "formats/glob.hpp"
#include "formats/huggingface/bookkeeping.hpp"
#include "formats/huggingface/json.hpp"

namespace mortise::huggingface {
namespace {

bool matches_any(const auto& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const auto& glob) { return glob_match(glob, name); });
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == at) parts.emplace_back();
    else parts.back() += c;
  return parts;
}

// "kv_heads*width/heads": each factor, and whether it divides. From left to right.
std::vector<std::pair<bool, std::string>> factors(const std::string& product) {
  std::vector<std::pair<bool, std::string>> all(1);
  for (const char c : product)
    if (c == '*' || c == '/') all.emplace_back(c == '/', "");
    else all.back().second += c;
  return all;
}

constexpr const char* kAnySize = "?";

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == text.npos;
}

class Reader {
 public:
  Reader(const std::vector<std::string>& model_keys, const Complain& complain)
      : model_keys_(model_keys), complain_(complain) {}

  Mapping read(const TomlTable& table) {
    for (const auto& [key, at, value] : table.entries) {
      if (key == "architectures") mapping_.architectures = texts(key, value);
      else if (key == "ignores") mapping_.ignores = texts(key, value);
      else if (key == "new") mapping_.fresh = texts(key, value);
      else if (key == "harmless") mapping_.harmless = texts(key, value);
      else if (key == "classes") read_classes(value);
      else if (key == "renames") read_renames(value);
      else if (key == "fixed") read_table(key, value, [&](const TomlEntry& e) { mapping_.fixed[e.key] = e.value; });
      else if (key == "keys") read_table(key, value, [&](const TomlEntry& e) { read_key(e); });
      else if (key == "tokens") read_table(key, value, [&](const TomlEntry& e) { read_token(e); });
      else if (key == "sizes") read_table(key, value, [&](const TomlEntry& e) { read_size(e); });
      else if (key == "parameters") mapping_.parameters = parameters(key, value);
      else if (key == "where") read_table(key, value, [&](const TomlEntry& e) { read_variants(e); });
      else
        complain_(at, "[huggingface] has no key `" + key + "`",
                  "it has: architectures, classes, fixed, harmless, ignores, keys, new, parameters, renames, sizes, "
                  "tokens, where");
    }
    if (!mapping_.architectures.empty() && mapping_.parameters.empty())
      complain_(table.find("architectures")->at, "[huggingface] names an architecture and not what it is made of",
                "[huggingface.parameters]");
    return std::move(mapping_);
  }

 private:
  std::vector<std::string> texts(const std::string& key, const TomlNode& node) {
    std::vector<std::string> all;
    if (node.text()) return {*node.text()};
    for (const TomlNode& each : node.list() ? *node.list() : TomlList())
      if (each.text()) all.push_back(*each.text());
    if (!node.list() || all.size() != node.list()->size())
      complain_(node.at, "huggingface." + key + " is a list of texts", key + " = [\"…\"]");
    return all;
  }
  template <class Each>
  void read_table(const std::string& key, const TomlNode& node, const Each& each) {
    if (!node.table())
      return complain_(node.at, "huggingface." + key + " is a table, this is " + node.kind(),
                       "[huggingface." + key + "]");
    for (const TomlEntry& entry : node.table()->entries) each(entry);
  }
  void read_renames(const TomlNode& node) {
    const auto is_pair = [](const TomlNode& pair) {
      const auto has_star = [](const TomlNode& t) { return t.text() && std::ranges::count(*t.text(), '*') == 1; };
      return pair.list() && pair.list()->size() == 2 && std::ranges::all_of(*pair.list(), has_star);
    };
    if (!node.list() || !std::ranges::all_of(*node.list(), is_pair))
      return complain_(node.at, "huggingface.renames is a list of pairs of names, each with one `*`",
                       "renames = [[\"model.*\", \"*\"]]");
    for (const TomlNode& pair : *node.list())
      mapping_.renames.emplace_back(*pair.list()->at(0).text(), *pair.list()->at(1).text());
  }
  void must_be_key(const std::string& key, const TomlPlace& at) {
    if (std::ranges::find(model_keys_, key) == model_keys_.end())
      complain_(at, "[huggingface] speaks of `" + key + "`, which is no key of [config]", "[config." + key + "]");
  }
  void read_classes(const TomlNode& node) {
    if (!node.text()) return complain_(node.at, "huggingface.classes is a key of [config]", "classes = \"classes\"");
    must_be_key(*node.text(), node.at);
    mapping_.classes = *node.text();
  }
  // [huggingface.where.KEY.VALUE]
  void read_variants(const TomlEntry& entry) {
    must_be_key(entry.key, entry.at);
    read_table("where." + entry.key, entry.value, [&](const TomlEntry& value) {
      const std::string whole = "where." + entry.key + "." + value.key;
      Variant& variant = mapping_.variants.emplace_back(Variant{entry.key, value.key, {}, {}});
      read_table(whole, value.value, [&](const TomlEntry& each) {
        if (each.key == "architectures") variant.architectures = texts(whole + "." + each.key, each.value);
        else if (each.key == "parameters") variant.parameters = parameters(whole + "." + each.key, each.value);
        else
          complain_(each.at, "[huggingface." + whole + "] has no key `" + each.key + "`",
                    "it has: architectures, parameters");
      });
    });
  }
  void read_key(const TomlEntry& entry) {
    must_be_key(entry.key, entry.at);
    mapping_.keys[entry.key] = texts("keys." + entry.key, entry.value);
  }
  void read_token(const TomlEntry& entry) {
    if (const auto* id = std::get_if<int64_t>(&entry.value.data)) mapping_.tokens[entry.key] = *id;
    else complain_(entry.value.at, "huggingface.tokens." + entry.key + " is the number of a token", entry.key + " = 0");
  }
  void read_size(const TomlEntry& entry) {
    if (!entry.value.text())
      return complain_(entry.value.at, "huggingface.sizes." + entry.key + " is a product of keys",
                       entry.key + " = \"4*width\"");
    mapping_.sizes[entry.key] = *entry.value.text();
    must_be_product(*entry.value.text(), entry.value.at);
  }
  void must_be_product(const std::string& text, const TomlPlace& at) {
    for (const auto& [divides, factor] : factors(text))
      if (!is_number(factor)) must_be_key(factor, at);
  }
  std::map<std::string, std::vector<std::string>> parameters(const std::string& key, const TomlNode& node) {
    std::map<std::string, std::vector<std::string>> all;
    read_table(key, node, [&](const TomlEntry& e) { read_parameter(e, all[e.key]); });
    return all;
  }
  void read_parameter(const TomlEntry& entry, std::vector<std::string>& sizes) {
    const std::vector<std::string> parts = split(entry.key, '{');
    for (size_t i = 1; i < parts.size(); ++i) {
      const size_t close = parts[i].find('}');
      must_be_key(close == std::string::npos ? "{" + parts[i] : parts[i].substr(0, close), entry.at);
    }
    for (const TomlNode& size : entry.value.list() ? *entry.value.list() : TomlList()) {
      const auto* number = std::get_if<int64_t>(&size.data);
      if (!size.text() && !number)
        complain_(size.at, "a size of `" + entry.key + "` is a number or a product of keys", "\"3*width\"");
      sizes.push_back(number ? std::to_string(*number) : size.text() ? *size.text() : "1");
      if (sizes.back() != kAnySize) must_be_product(sizes.back(), size.at);
    }
    if (!entry.value.list())
      complain_(entry.value.at, "huggingface.parameters says sizes", "\"" + entry.key + "\" = [\"width\"]");
  }

  const std::vector<std::string>& model_keys_;
  const Complain& complain_;
  Mapping mapping_;
};

std::string sizes_text(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// What the mapping's parameters are of these values: `{layers}` of a name counts from 0.
class Architecture {
 public:
  explicit Architecture(const std::map<std::string, std::string>& values) : values_(values) {}

  std::map<std::string, Sizes> parameters(const Mapping& mapping) {
    for (const auto& [name, sizes] : mapping.parameters) {
      Sizes numbers;
      for (const std::string& size : sizes) numbers.push_back(size == kAnySize ? -1 : product(size));
      add(name, numbers);
    }
    return std::move(all_);
  }
  int64_t product(const std::string& text) const {
    uint64_t all = 1;
    for (const auto& [divides, factor] : factors(text)) {
      const auto number = static_cast<uint64_t>(is_number(factor) ? std::stoll(factor) : value(factor));
      if (!divides) all *= number;
      else all = number == 0 ? 0 : all / number;
    }
    return static_cast<int64_t>(all);
  }

 private:
  int64_t value(const std::string& key) const {
    const auto found = values_.find(key);
    const Json number = found == values_.end() ? Json() : parse_json(found->second);
    return number.is_number_integer() ? number.get<int64_t>() : 0;
  }
  void add(const std::string& name, const Sizes& sizes) {
    const size_t open = name.find('{'), close = name.find('}', open == name.npos ? 0 : open);
    if (open == name.npos || close == name.npos) {
      all_[name] = sizes;
      return;
    }
    for (int64_t i = 0; i < value(name.substr(open + 1, close - open - 1)); ++i)
      add(name.substr(0, open) + std::to_string(i) + name.substr(close + 1), sizes);
  }

  const std::map<std::string, std::string>& values_;
  std::map<std::string, Sizes> all_;
};

}  // namespace

Mapping read_mapping(const TomlTable& table, const std::vector<std::string>& model_keys, const Complain& complain) {
  return Reader(model_keys, complain).read(table);
}

Mapping Mapping::chosen(const std::map<std::string, std::string>& values) const {
  Mapping all = *this;
  for (const Variant& v : variants) {
    const auto value = values.find(v.key);
    if (value == values.end() || (value->second != v.value && value->second != Json(v.value).dump())) continue;
    if (!v.architectures.empty()) all.architectures = v.architectures;
    all.parameters.insert(v.parameters.begin(), v.parameters.end());
  }
  return all;
}

// What `*` stands for is kept. The first that fits counts.
std::string Mapping::declared_name(const std::string& in_file) const {
  for (const auto& [from, to] : renames) {
    const std::string before = from.substr(0, from.find('*')), after = from.substr(before.size() + 1);
    if (in_file.size() < before.size() + after.size() || !in_file.starts_with(before) || !in_file.ends_with(after))
      continue;
    const std::string kept = in_file.substr(before.size(), in_file.size() - before.size() - after.size());
    return std::string(to).replace(to.find('*'), 1, kept);
  }
  return in_file;
}

bool Mapping::ignores_tensor(const std::string& name) const { return matches_any(ignores, name); }

bool Mapping::may_lack(const std::string& parameter) const { return matches_any(fresh, parameter); }

bool Mapping::knows_within(const std::string& config_key) const {
  const auto is_within = [&](const std::string& name) { return name.starts_with(config_key + "."); };
  return std::ranges::any_of(fixed, is_within, [](const auto& f) { return f.first; }) ||
         std::ranges::any_of(keys, [&](const auto& key) { return std::ranges::any_of(key.second, is_within); });
}

bool Mapping::knows(const std::string& config_key) const {
  const auto is_it = [&](const auto& key) { return std::ranges::find(key.second, config_key) != key.second.end(); };
  return fixed.contains(config_key) || sizes.contains(config_key) || tokens.contains(config_key) ||
         std::ranges::any_of(keys, is_it) || matches_any(harmless, config_key) || matches_any(kBookkeeping, config_key);
}

std::map<std::string, int64_t> sizes_of(const Mapping& mapping, const std::map<std::string, std::string>& values) {
  std::map<std::string, int64_t> all;
  for (const auto& [name, size] : mapping.sizes)
    if (const int64_t n = Architecture(values).product(size)) all[name] = n;
  return all;
}

std::vector<std::string> differences(const Mapping& mapping, const std::map<std::string, std::string>& values,
                                     const std::map<std::string, Sizes>& parameters) {
  std::vector<std::string> all;
  const std::map<std::string, Sizes> architecture = Architecture(values).parameters(mapping);
  for (const auto& [name, sizes] : parameters) {
    const auto theirs = architecture.find(name);
    if (theirs == architecture.end()) all.push_back(name + " is added");
    else if (!std::ranges::equal(theirs->second, sizes, [](int64_t a, int64_t b) { return a == -1 || a == b; }))
      all.push_back(name + " is " + sizes_text(sizes) + ", not " + sizes_text(theirs->second));
  }
  for (const auto& [name, sizes] : architecture)
    if (!parameters.contains(name)) all.push_back(name + " is missing");
  return all;
}

}  // namespace mortise::huggingface
