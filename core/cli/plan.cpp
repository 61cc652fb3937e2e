// mortise plan [RUN]
#include <fstream>
#include <iomanip>
#include <iostream>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/loop/run.hpp"

namespace mortise::cli {
namespace {

void print_keys(const Manifest& m) {
  const auto line = [](const std::string& key, const Value& v) {
    std::cout << "  " << std::left << std::setw(40) << key << std::setw(28) << (v.is_set() ? v.text() : "-") << (v.origin ? v.origin.text() : "default") << "\n";
  };
  for (const auto& [table, values] : m.tables)
    for (const auto& [key, v] : values) line(table + "." + key, v);
  for (const auto& p : m.plugins)
    for (const auto& [key, v] : p.values) line(p.schema->id + "." + key, v);
  for (const auto& r : m.rules)
    for (const auto& [key, v] : r.values) line("parameters." + r.name + "." + key, v);
}

std::string mebibytes(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1024.0 * 1024.0);
  return text.str();
}

void print_memory(const Summary& s) {
  std::cout << "\nmemory, MiB, exact from the declarations\n";
  const auto line = [](const char* what, int64_t bytes) { std::cout << "  " << std::left << std::setw(13) << what << std::right << std::setw(10) << mebibytes(bytes) << "\n"; };
  line("weights", s.weights_bytes);
  line("gradients", s.gradients_bytes);
  line("optimizer", s.states_bytes);
  line("casts", s.casts_bytes);
  line("total", s.weights_bytes + s.gradients_bytes + s.states_bytes + s.casts_bytes);
  std::cout << "  activations  not predicted in this version\n";
}

int print_layer(const Arguments& args) {
  if (args.last("--layer") != "default") {
    Diagnostic d;
    d.code = "unknown_layer";
    d.message = "no layer `" + args.last("--layer") + "` is shipped";
    d.fixes = {"mortise plan --layer default"};
    throw Failure(d);
  }
  std::ifstream in(manifest_request(args, "").default_file);
  std::cout << in.rdbuf();
  return kExitOk;
}

void print_json_plan(const Planned& p, const Summary* s) {
  std::cout << "{\"plan\":" << plan_json(p.plan);
  if (s)
    std::cout << ",\"model\":{\"parameters\":" << s->parameters << "},\"length\":{\"steps\":" << s->steps << ",\"samples_per_step\":" << s->samples_per_step << ",\"tokens_per_step\":" << s->tokens_per_step
              << ",\"micros\":" << s->micros << ",\"ranks\":" << s->ranks << "},\"memory\":{\"weights_bytes\":" << s->weights_bytes << ",\"gradients_bytes\":" << s->gradients_bytes
              << ",\"optimizer_bytes\":" << s->states_bytes << ",\"casts_bytes\":" << s->casts_bytes << "}";
  std::cout << "}\n";
}

}  // namespace

int plan(const Arguments& args) {
  if (args.has("--layer")) return print_layer(args);
  const auto planned = make_planned(args, args.positional.empty() ? "run.toml" : args.positional[0]);
  if (args.has("--keys")) {
    print_keys(planned->manifest);
    return kExitOk;
  }
  if (args.has("--why")) {
    if (print_why(std::cout, planned->plan, args.last("--why"))) return kExitOk;
    Diagnostic d;
    d.code = "unknown_point";
    d.message = "no point is called `" + args.last("--why") + "`";
    d.fixes = {"mortise points names them all"};
    throw Failure(d);
  }
  if (args.has("--static")) {
    if (globals().json) print_json_plan(*planned, nullptr);
    else print_structure(std::cout, planned->plan);
    return kExitOk;
  }
  const Run run({.manifest = &planned->manifest, .plan = &planned->plan, .probe = installation().probe, .dir = "", .allocate = false, .weights = ""});
  const Summary& s = run.summary();
  if (globals().json) {
    print_json_plan(*planned, &s);
    return kExitOk;
  }
  if (args.has("--weights")) {
    for (const auto& line : s.parameter_lines) std::cout << line << "\n";
    return kExitOk;
  }
  std::cout << planned->manifest.name << "  (" << join({planned->manifest.layers.rbegin(), planned->manifest.layers.rend()}, ", ") << ")   plan " << planned->plan.hash << "\n";
  std::cout << "length   " << with_commas(s.steps) << " steps, " << with_commas(s.steps_per_epoch) << " an epoch\n";
  std::cout << "batch    " << s.batch << "\nmodel    " << s.model << "\ndata     " << s.data << "\ndevice   " << s.device << "\n\n";
  print_structure(std::cout, planned->plan, s.details);
  std::cout << "\nparameters\n";
  for (const auto& g : s.groups) std::cout << "  " << g << "\n";
  print_memory(s);
  return kExitOk;
}

}  // namespace mortise::cli
