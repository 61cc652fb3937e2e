#include "core/cli/command_line.hpp"

namespace mortise::cli {

Work light_work(const std::string& verb, const Arguments& args) {
  if (verb == "points") return points;
  if (verb == "plugin") return plugin;
  if (verb == "checkpoint") return checkpoint;
  if (verb == "export") return export_model;
  if (verb == "plan" && asks_for_structure(args)) return plan_structure;
  return nullptr;
}

}  // namespace mortise::cli
