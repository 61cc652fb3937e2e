// How a model and Hugging Face's files of it call the same things: what [huggingface] of the model's plugin.toml says.
// No code of the model is asked.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/toml/toml.hpp"

namespace mortise::huggingface {

using Sizes = std::vector<int64_t>;

// What holds only where a key of the model has this value.
struct Variant {
  std::string key, value;                                      // the value as JSON, a text without quotes
  std::vector<std::string> architectures;                      // in place of the mapping's
  std::map<std::string, std::vector<std::string>> parameters;  // besides the mapping's
};

struct Mapping {
  std::vector<std::string> architectures;                      // classes of transformers that such a folder is of
  std::vector<std::pair<std::string, std::string>> renames;    // of tensors, from a file's name to the model's
  std::vector<std::string> ignores;                            // globs: tensors of files that the model has no use for
  std::vector<std::string> fresh;                              // globs: parameters that files need not have
  std::vector<std::string> harmless;                           // globs: keys of config.json that change no model of it
  std::map<std::string, TomlNode> fixed;                       // keys of config.json that have one value in all of them
  std::map<std::string, std::vector<std::string>> keys;        // by the model's key: its names in config.json
  std::map<std::string, int64_t> tokens;                       // keys of config.json: ids of special tokens
  std::map<std::string, std::string> sizes;                    // keys of config.json: products of the model's keys
  std::map<std::string, std::vector<std::string>> parameters;  // of an architecture: names, and their sizes as products
  std::vector<Variant> variants;
  std::string classes;  // the model's key that counts classes, whose names config.json has as id2label; "": none

  // With the variants that these values of the model's keys (as JSON) choose.
  Mapping chosen(const std::map<std::string, std::string>& values) const;
  // A folder's config.json can be written and read.
  bool has_config() const { return !keys.empty() || !fixed.empty(); }
  // The model's name of a tensor that a file calls so.
  std::string declared_name(const std::string& in_file) const;
  bool ignores_tensor(const std::string& name) const;
  bool may_lack(const std::string& parameter) const;
  // The file's config.json knows this key, or it says nothing about the architecture. "a.b": `b` of the object `a`.
  bool knows(const std::string& config_key) const;
  // It knows a key of this object.
  bool knows_within(const std::string& config_key) const;
};

// Called for every mistake of the table.
using Complain = std::function<void(const TomlPlace& at, const std::string& message, const std::string& fix)>;

// `model_keys`: what the model's own table may have.
Mapping read_mapping(const TomlTable& table, const std::vector<std::string>& model_keys, const Complain& complain);

// What the keys of `sizes` are of these values, as differences() has them; without those whose values are not there.
std::map<std::string, int64_t> sizes_of(const Mapping& mapping, const std::map<std::string, std::string>& values);

// What of these parameters is not the architecture's: "h.0.mlp.router.weight is added", "wpe.weight is missing",
// "wte.weight is [300, 16], not [256, 16]". `values`: of the model's keys, as JSON.
std::vector<std::string> differences(const Mapping& mapping, const std::map<std::string, std::string>& values,
                                     const std::map<std::string, Sizes>& parameters);

}  // namespace mortise::huggingface
