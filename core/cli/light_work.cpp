#include "core/cli/command_line.hpp"

namespace mortise::cli {

Work light_work(const std::string& verb) {
  if (verb == "points") return points;
  if (verb == "keys") return keys;
  if (verb == "plugin") return plugin;
  if (verb == "checkpoint") return checkpoint;
  if (verb == "export") return export_model;
  if (verb == "plan") return plan;
  if (verb == "explain") return explain;
  return nullptr;
}

}  // namespace mortise::cli
