// mortise explain [CODE]: of an error or an exit, or a key
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/errors.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise::cli {
namespace {

nlohmann::ordered_json json(const ErrorEntry& entry) {
  return {{"code", entry.code}, {"exit", entry.exit}, {"meaning", entry.meaning}};
}

nlohmann::ordered_json json(const ExitEntry& entry) {
  return {{"exit", entry.code}, {"name", entry.name}, {"meaning", entry.meaning}, {"supervisor", entry.supervisor}};
}

// A key by its whole name: "checkpoint.keep". False: there is none.
bool explain_key(const Arguments& args, const std::string& whole) {
  Report report;  // what is wrong with plugins is said where they are used
  std::vector<std::string> searched;
  std::map<std::string, PluginSchema> schemas;
  for (const auto& [id, info] : catalogue(args, nullptr, searched, report)) schemas[id] = info.schema;
  ManifestRequest request = manifest_request(args, "");
  request.catalogue = &schemas;
  const size_t dot = std::min(whole.rfind('.'), whole.size());
  const KeySchema* key = Vocabulary(request).key(whole.substr(0, dot), whole.substr(std::min(dot + 1, whole.size())));
  if (key == nullptr) return false;
  const std::string standard = key->default_value.is_set() ? key->default_value.text() : "";
  if (globals().json)
    std::cout << nlohmann::ordered_json(
                     {{"key", whole}, {"type", key->type}, {"default", standard}, {"meaning", key->doc}})
              << "\n";
  else
    std::cout << fmt::format("[{}] {}: {}{}\n  {}\n", whole.substr(0, dot), key->name, key->type,
                             standard.empty() ? "" : ", by default " + standard, escape_control(key->doc));
  return true;
}

}  // namespace

int explain(const Arguments& args) {
  if (args.has("--markdown")) {
    std::cout << errors_markdown();
  } else if (!args.positional.empty() && explain_key(args, args.positional[0])) {
    return kExitOk;
  } else if (!args.positional.empty()) {
    const std::string &code = args.positional[0], text = explain_error(code);
    const ExitEntry* exit = find_exit(code);
    if (!globals().json) std::cout << text;
    else std::cout << (exit != nullptr ? json(*exit) : json(*find_error(code))) << "\n";
  } else {
    for (const ErrorEntry& entry : all_errors()) {
      if (globals().json) std::cout << json(entry) << "\n";
      else std::cout << fmt::format("{:<24}{:<5}{}\n", entry.code, entry.exit, entry.meaning);
    }
  }
  return kExitOk;
}

}  // namespace mortise::cli
