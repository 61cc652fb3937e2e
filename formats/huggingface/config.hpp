// config.json of a folder as transformers writes it: what it says of the model, and the one that is written.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/huggingface/json.hpp"
#include "formats/huggingface/mapping.hpp"

namespace mortise::huggingface {

inline constexpr const char *kConfigFile = "config.json", *kGenerationFile = "generation_config.json";

// What was added to a parameter: in a folder of the model alone it is into + scale × left · right (or its transpose),
// and the two are not there.
struct Product {
  std::string into, left, right;
  double scale = 1;
  bool transposed = false;
};

// What a folder of PEFT needs to be told of such products.
struct Added {
  std::vector<Product> products;
  std::vector<std::string> learned;  // what learns of the model's own parameters
  // What stands before the model's names in transformers' memory, not in its files; none: they are others there.
  std::optional<std::string> prefix;
  // Of each plugin that says so: keys of adapter_config.json, and their values as JSON.
  std::vector<std::map<std::string, std::string>> settings;
  std::vector<std::string> tied = {};  // of `learned`, what stands in several places of the model
};

// What a folder says besides of what shape its model is. A model that is trained from it has the same still.
struct Beside {
  std::map<std::string, std::string> tokens;  // the `*_token_id` of config.json that are set, as JSON
  std::string generation;                     // generation_config.json; "": none
};
// Of a folder, or a file, that may have neither. Throws FormatError (bad_config_json, not_read).
Beside beside_in(const std::string& folder);

class Config {
 public:
  // A key and its value; `at` has the line, and column 0.
  struct Setting {
    std::string name;
    TomlNode value;    // text where it is neither a number nor true or false
    std::string text;  // for messages: ASCII, and not long
  };
  struct Contradiction {
    Setting stated;
    std::string fixed;  // what every model of the mapping has there
  };

  // `path` is for places. Throws FormatError (bad_config_json).
  Config(std::string path, std::string_view text);
  // Throws FormatError (also not_read).
  static Config of_folder(const std::string& folder);

  // Nothing if it is not there or null. "a.b": `b` of the object `a`.
  std::optional<Setting> find(const std::string& name) const;
  std::vector<Contradiction> contradictions(const Mapping& mapping) const;
  // What the mapping does not know, and is neither null nor false: keys that may make another model.
  std::vector<Setting> unknown(const Mapping& mapping) const;

  // The ids of special tokens that are set, as JSON.
  std::map<std::string, std::string> tokens() const;
  // The first class of transformers that it is for; "" if it says none.
  std::string architecture() const;
  // Of classes, by their numbers; none where they are not named, or have only the names that transformers makes up.
  std::vector<std::string> classes() const;
  // Why it is for none, as config_text wrote it; empty if it does not say.
  std::vector<std::string> differences() const;
  // What export merges, and the config.json of the folder then; its own if there is nothing to merge. Throws
  // FormatError (bad_config_json).
  std::vector<Product> products() const;
  Config merged() const;
  // The same with what else is said of it; nothing where nothing was added. Throws as above.
  Added added() const;
  // The same for weights of an element type as safetensors calls it: "BF16".
  std::string text_for(const std::string& dtype) const;

 private:
  [[noreturn]] void refuse_merge() const;
  Setting setting(const std::string& name, const Json& value) const;
  void add_unknown(const Mapping& mapping, const std::string& within, const Json& object,
                   std::vector<Setting>& all) const;
  std::string path_;
  Json values_;
  std::map<std::string, int> lines_;  // of the outermost keys
};

// The config.json of a model with these values of its keys (as JSON), these parameters, names of classes and ids of
// special tokens. If the parameters are not those of the architecture it claims none, and says what differs.
std::string config_text(const Mapping& mapping, const std::map<std::string, std::string>& values,
                        const std::map<std::string, Sizes>& parameters, const std::vector<std::string>& classes = {},
                        const Added& added = {}, const std::map<std::string, std::string>& tokens = {});

}  // namespace mortise::huggingface
