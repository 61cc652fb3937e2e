// mortise explain [CODE]: of an error, or an exit code
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/errors.hpp"
#include "core/cli/common.hpp"

namespace mortise::cli {
namespace {

nlohmann::ordered_json json(const ErrorEntry& entry) {
  return {{"code", entry.code}, {"exit", entry.exit}, {"meaning", entry.meaning}};
}

nlohmann::ordered_json json(const ExitEntry& entry) {
  return {{"exit", entry.code}, {"name", entry.name}, {"meaning", entry.meaning}, {"supervisor", entry.supervisor}};
}

}  // namespace

int explain(const Arguments& args) {
  if (args.has("--markdown")) {
    std::cout << errors_markdown();
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
