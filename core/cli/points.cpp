// mortise points
#include <iostream>

#include "core/cli/common.hpp"
#include "core/cli/print.hpp"

namespace mortise::cli {

int points(const Arguments& args) {
  Report report;
  std::vector<std::string> searched;
  PointTable table;
  for (const auto& [id, info] : catalogue(args, nullptr, searched, report))
    for (const auto& row : info.operators)
      table.add_operator(row.name, row.arguments + " -> " + row.results, row.doc, id);
  if (report.has_errors()) say(report, "");
  if (args.has("--markdown")) std::cout << points_markdown(table);
  else print_points(std::cout, table, globals().json);
  return kExitOk;
}

}  // namespace mortise::cli
