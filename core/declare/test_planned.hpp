// A manifest over the plugins of this build, planned as the program plans it; for tests of rooms that start plugins.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/declare/declared.hpp"

namespace mortise::testing {

// The smallest run that has everything: two blocks of a GPT on random tokens.
constexpr const char* kSmallRun = R"([run]
length = 6
[data]
micro_batch_size = 2
sequence_length = 8
[data.random]
samples = 12
validation_samples = 5
high = 11
[model.gpt]
layers = 2
heads = 2
width = 8
)";

struct PlannedRun {
  std::map<std::string, PluginInfo> catalogue;
  std::map<std::string, PluginSchema> schemas;
  Manifest manifest;
  Plan plan;
  std::string errors;

  // `more` follows kSmallRun; without an [optimizer.NAME] there, adamw is used. `without`: plugins that are left out.
  // `folders`: of further plugins.
  explicit PlannedRun(const std::string& more = "", const std::vector<std::string>& set = {},
                      const std::vector<std::string>& without = {}, std::vector<std::string> folders = {}) {
    Report report;
    folders.emplace_back(MORTISE_BINARY_DIR "/plugins");
    catalogue = scan_plugins(folders, report);
    for (const auto& [id, info] : catalogue) schemas[id] = info.schema;
    ManifestRequest request;
    request.file = "run.toml";
    request.text = kSmallRun + more;
    request.default_file = MORTISE_SOURCE_DIR "/configs/default.toml";
    request.shipped_dir = MORTISE_SOURCE_DIR "/configs";
    request.catalogue = &schemas;
    request.set = set;
    request.set.push_back("device.cpu.threads=1");
    request.without = {"log.console", "log.jsonl"};
    request.without.insert(request.without.end(), without.begin(), without.end());
    if (more.find("[optimizer.") == std::string::npos) request.use = {"optimizer.adamw"};
    manifest = read_manifest(request, report);
    if (report.exit_code() == 0)
      plan = make_plan(manifest, catalogue, [](const PluginInfo&) { return std::string(); }, report);
    std::ostringstream text;
    report.print(text, false, "");
    if (report.exit_code() != 0) errors = text.str();
    EXPECT_EQ(errors, "");
  }
  DeclareRequest request() const {
    DeclareRequest r;
    r.manifest = &manifest;
    r.plan = &plan;
    return r;
  }
};

}  // namespace mortise::testing
