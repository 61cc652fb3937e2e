// The layers on top of one another: of each table, who wrote it last and what every key says. Unknown names and wrong values are found here, layer by
// layer, whether or not a later layer replaces them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/manifest/layers.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise {

struct Written {
  Value value;
  int layer = 0;
  const KeySchema* schema = nullptr;
};

// A core table, a family, a plugin's table or a [parameters.NAME].
struct MergedTable {
  int layer = -1;   // the highest that has it; -1: only --set speaks of it
  Position origin;  // in that layer
  bool enabled = true;
  std::map<std::string, Written> keys;
};

class Merger {
 public:
  Merger(const Vocabulary& words, Report& report) : words_(words), report_(report) {}

  void add_layer(const Layer& layer, int number);
  void use(const std::string& id, int number);
  void without(const std::string& id, int number);
  void set(const Setting& setting, int number);

  std::map<std::string, MergedTable> tables;  // by name: "run", "optimizer", "FAMILY.NAME", "parameters.RULE"

  // The plugin of a higher layer that takes every place of this one; "" if none does. Which places, in detail, is the plan's.
  std::string replaced_by(const std::string& id) const;

 private:
  void root_entry(const TomlEntry& entry);
  void unknown_table(const TomlEntry& entry);
  void family(const TomlEntry& entry);
  void own_table(const std::string& name, const TomlEntry& entry);
  void write(const std::string& table, const std::string& key, const TomlNode& value, const Position& at);
  void check_reserved(const std::string& id, const std::string& key, const Value& value);
  bool is_on(const Setting& setting, const std::string& id);
  Position at(const TomlEntry& entry, const std::string& key = {}) const { return position_of(file_, entry, key); }
  Position at(const TomlNode& node) const { return position_of(file_, node); }

  const Vocabulary& words_;
  Report& report_;
  std::string file_;  // of the layer being added
  int layer_ = 0;
};

}  // namespace mortise
