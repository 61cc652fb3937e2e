// mortise plan [RUN], the whole of it: the model is declared, so plugins run.
#include <iostream>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/loop/run.hpp"

namespace mortise::cli {

int plan(const Arguments& args) {
  const auto planned = make_planned(args, source_of_plan(args));
  const auto run = make_run(*planned, {.purpose = Purpose::kPlan});
  const Summary& s = run->summary();
  const std::vector<std::string>& lines = s.parameter_lines;
  if (!args.has("--weights")) {
    if (globals().json) print_json_plan(*planned, &s);
    else print_plan(std::cout, *planned, s, terminal_width(STDOUT_FILENO));
  } else if (globals().json) {
    std::cout << list_text("parameters", {lines.begin(), lines.end()});
  } else {
    std::cout << join(lines, "\n") << "\n";
  }
  return kExitOk;
}

}  // namespace mortise::cli
