// What the tests of this room share: a folder of their own, a small catalogue, and a report as people read it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "core/manifest/manifest.hpp"

namespace mortise {

inline std::string printed(const Report& report) {
  std::ostringstream out;
  report.print(out, false, "");
  return out.str();
}

inline PluginSchema plugin_schema(const std::string& id, std::vector<std::string> provides,
                                  std::vector<std::string> exclusive, const std::string& toml) {
  PluginSchema schema;
  schema.id = id;
  schema.family = id.substr(0, id.find('.'));
  schema.name = id.substr(id.find('.') + 1);
  schema.provides = std::move(provides);
  schema.exclusive = std::move(exclusive);
  Report report;
  const std::optional<TomlTable> root = parse_toml(toml, "plugin.toml", report);
  if (root) read_plugin_schema(*root, schema, report);
  EXPECT_EQ(printed(report), "");
  return schema;
}

// Made in an empty folder that is also the current one.
class ManifestTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    folder = std::filesystem::canonical(testing::TempDir()) / ("mortise_manifest." + std::to_string(getpid()));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder / "shipped");
    std::filesystem::current_path(folder);
    request.shipped_dir = folder / "shipped";
    request.catalogue = &catalogue;
    request.searched = {"./build", "/opt/mortise/lib/mortise/plugins"};
    add("optimizer.adamw", {"optimizer"}, {}, R"(
      [config.betas]
      type = "list<float>"
      default = [0.9, 0.999]
      min = 0
      max = 1
      [config.eps]
      type = "float"
      default = 1e-8
      exclusive_min = 0
      aka = "epsilon"
      [family_defaults]
      lr = 1e-3)");
    add("optimizer.sgd", {"optimizer"}, {}, "[config.momentum]\ntype = \"float\"\ndefault = 0.0");
    add("model.bert", {"model"}, {}, R"(
      [config.dropout]
      type = "float"
      default = 0.1
      min = 0
      max = 1
      [config.layers]
      type = "int"
      default = 2
      min = 1
      [config.width]
      type = "int"
      [config.preset]
      type = "choice"
      [preset.base]
      layers = 12
      width = 768
      [preset.large]
      layers = 24
      width = 1024)");
    add("data.text", {"data"}, {}, "[config.path]\ntype = \"list<path>\"\n[config.cache]\ntype = \"path\"");
    add("sample.text", {"sample"}, {}, "");
    add("data.random", {"data"}, {}, "[config.samples]\ntype = \"int\"\ndefault = 100");
    add("precision.bf16", {}, {"precision.compute"}, "");
    add("precision.fp32", {}, {"precision.compute"}, "");
    add("device.cpu", {"device"}, {}, "");
    add("device.cuda", {"device"}, {}, "");
    add("log.wandb", {}, {}, "[config.key_env]\ntype = \"env\"\ndefault = \"WANDB_API_KEY\"");
    add("schedule.constant", {"schedule"}, {}, "");
    add("schedule.cosine", {"schedule"}, {}, "[config.final]\ntype = \"float\"\ndefault = 0.0\nmin = 0\nmax = 1");
    add("compile.fused", {}, {},
        "[config.only]\ntype = \"where\"\n[config.old]\ntype = \"int\"\ndeprecated = { since = \"0.2\", use = "
        "\"only\", remove = \"0.4\" }");
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder);
  }

  void add(const std::string& id, std::vector<std::string> provides, std::vector<std::string> exclusive,
           const std::string& toml) {
    catalogue[id] = plugin_schema(id, std::move(provides), std::move(exclusive), toml);
  }
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder / path).parent_path());
    std::ofstream(folder / path, std::ios::binary) << text;
  }
  // The manifest of run.toml with this text; what is wrong with it is in `errors`.
  Manifest read(const std::string& text) {
    file("run.toml", text);
    request.file = "run.toml";
    return read_again();
  }
  Manifest read_again() {
    Report report;
    Manifest manifest = read_manifest(request, report);
    errors = printed(report);
    return manifest;
  }
  const PluginTable& plugin(const Manifest& manifest, const std::string& id) {
    for (const PluginTable& table : manifest.plugins)
      if (table.schema->id == id) return table;
    throw std::runtime_error(id + " has no table");
  }

  std::filesystem::path folder;
  std::map<std::string, PluginSchema> catalogue;
  ManifestRequest request;
  std::string errors;

 private:
  std::filesystem::path before_;
};

}  // namespace mortise
