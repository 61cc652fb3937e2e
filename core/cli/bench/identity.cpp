#include "core/cli/bench/identity.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/host_name.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/manifest/path.hpp"
#include "core/store/hash.hpp"

namespace mortise::cli {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line.substr(0, line.find_last_not_of(" \t\r") + 1);
}

// Facts of plugin.toml: [needs] named_by = "/proc/…/*/…", whose first lines are "Model: NAME", and hidden_by =
// "VARIABLE", which may leave some of them out.
std::string devices_of(const PluginInfo& info) {
  const Value *files = fact_of(info, "needs", "named_by"), *variable = fact_of(info, "needs", "hidden_by");
  std::string all;
  if (!files) return all;
  for (const std::string& file : expand_glob(files->as_text())) {
    const std::string line = first_line(file);
    const size_t name = line.find_first_not_of(" \t", line.find(':') + 1);
    if (name != line.npos) all += ", " + line.substr(name);
  }
  if (all.empty() || !variable) return all;
  const char* const shown = std::getenv(variable->as_text().c_str());
  return shown ? all + ", " + variable->as_text() + "=" + shown : all;
}

}  // namespace

std::string build_of(const std::map<std::string, PluginInfo>& catalogue, const std::string& program) {
  std::string all;
  for (const std::string& file : {std::string("/proc/self/exe"), installation().library, program})
    all += sha256_of_file(file) + "\n";
  for (const auto& [id, info] : catalogue) all += id + " " + sha256_of_file(info.library) + "\n";
  return sha256_of(all.data(), all.size()).substr(0, 16);
}

std::string machine_of(const std::map<std::string, PluginInfo>& catalogue) {
  std::string all =
      fmt::format("{}, {}, {} processors", host_name(), processor_name(), std::thread::hardware_concurrency());
  for (const auto& [id, info] : catalogue) all += devices_of(info);
  return escape_control(all);
}

std::string program_named(const std::string& name) {
  const std::string beside = installation().prefix + "/bin/" + name;
  return !name.empty() && name.find('/') == name.npos && std::filesystem::exists(beside) ? beside : name;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "a processor";
}

}  // namespace mortise::cli
