// mortise explain [CODE]
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

}  // namespace

int explain(const Arguments& args) {
  if (args.has("--markdown")) {
    std::cout << errors_markdown();
  } else if (!args.positional.empty()) {
    const std::string text = explain_error(args.positional[0]);
    if (globals().json) std::cout << json(*find_error(args.positional[0])) << "\n";
    else std::cout << text;
  } else {
    for (const ErrorEntry& entry : all_errors()) {
      if (globals().json) std::cout << json(entry) << "\n";
      else std::cout << fmt::format("{:<24}{:<5}{}\n", entry.code, entry.exit, entry.meaning);
    }
  }
  return kExitOk;
}

}  // namespace mortise::cli
