// What a manifest is put together from: its files, lowest first, and the settings of the command line.
#pragma once
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/manifest/toml.hpp"

namespace mortise {

struct Layer {
  std::string name;    // "default.toml", "mortise:gpt2_124m", "configs/run.toml": as people type it
  std::string folder;  // absolute; what its paths are relative to
  TomlTable root;      // empty if the file is no TOML
  std::vector<std::string> lines;
};

// default.toml < includes < the file < --include. Each file stands after its own includes, and once among those of one
// root.
std::vector<Layer> read_layers(const ManifestRequest& request, Report& report);

// One --set.
struct Setting {
  Position at;  // "command line: --set optimizer.lr=1", and the key
  TomlNode value;
  bool to_default = false;  // --set key=default
};
std::vector<Setting> read_settings(const std::vector<std::string>& set, Report& report);

}  // namespace mortise
