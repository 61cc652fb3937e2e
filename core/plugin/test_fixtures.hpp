// What the tests of this room share: fixtures by name, files, and the error that a function ends with.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/diagnostic.hpp"
#include "core/plugin/plugin_info.hpp"

namespace mortise {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A folder that lives as long as the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "mortise-plugin-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string text() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// fixtures/CMakeLists.txt builds them; here, what reading the plugin.toml of one would give.
inline PluginInfo fixture(const std::string& name) {
  PluginInfo info;
  info.schema.id = "fixture." + name;
  info.folder = MORTISE_FIXTURES;
  info.library = info.folder + "/fixture." + name + ".so";
  info.toml_path = info.folder + "/fixture." + name + ".toml";
  info.toml_text = read_file(info.toml_path);
  info.abi = "0.1";
  return info;
}

template <class Function>
Diagnostic failure_of(Function function) {
  try {
    function();
  } catch (const Failure& failure) {
    return failure.diagnostic;
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace mortise
