// What a manifest is put together from: its files, lowest first, and the settings of the command line.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/manifest/toml.hpp"

namespace mortise {

struct Layer {
  std::string name;    // "default.toml", "mortise:gpt2_124m", "configs/run.toml": as people type it
  std::string folder;  // absolute; what its paths are relative to
  TomlTable root;
};

struct LayerFiles {
  std::vector<Layer> layers;
  std::map<std::string, std::vector<std::string>> lines;  // of each file, by Layer::name; also of those that are no TOML
};

// default.toml < includes < the file < --include. Each file stands after its own includes, and once among those of one root.
LayerFiles read_layers(const ManifestRequest& request, Report& report);

// One --set.
struct Setting {
  std::vector<std::string> path;  // the key, in parts
  TomlNode value;
  bool to_default = false;  // --set key=default
  std::string file;         // "command line: --set optimizer.lr=1", for positions
};
std::vector<Setting> read_settings(const std::vector<std::string>& set, Report& report);

}  // namespace mortise
