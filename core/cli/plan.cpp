// mortise plan [RUN]
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>

#include "core/assemble/run.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/print.hpp"
#include "core/cli/run_directory.hpp"

namespace mortise::cli {
namespace {

void print_keys(const Manifest& m) {
  const bool json = globals().json;
  const char* between = "{\"keys\":[";
  const auto line = [&](const std::string& key, const Value& v) {
    const std::string from = v.origin ? v.origin.text() : "default", value = v.text();
    if (json) {
      std::cout << between << "{\"key\":" << json_string(key)
                << ",\"value\":" << (v.is_set() ? json_string(value) : "null") << ",\"from\":" << json_string(from)
                << "}";
      between = ",\n";
      return;
    }
    std::cout << "  " << std::left << std::setw(36) << key << " " << std::setw(28) << (v.is_set() ? value : "-") << " "
              << escape_control(from) << "\n";
  };
  for (const auto& [table, values] : m.tables)
    for (const auto& [key, v] : values) line(table + "." + key, v);
  for (const auto& p : m.plugins)
    for (const auto& [key, v] : p.values) line(p.schema->id + "." + key, v);
  for (const auto& r : m.rules)
    for (const auto& [key, v] : r.values) line("parameters." + r.name + "." + key, v);
  if (json) std::cout << "]}\n";
}

std::string mebibytes(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1024.0 * 1024.0);
  return text.str();
}

void print_memory(std::ostream& out, const Summary& s) {
  out << "\nmemory, MiB, exact from the declarations\n";
  const auto line = [&](const char* what, int64_t bytes) {
    out << "  " << std::left << std::setw(13) << what << std::right << std::setw(10) << mebibytes(bytes) << "\n";
  };
  line("weights", s.weights_bytes);
  line("gradients", s.gradients_bytes);
  line("optimizer", s.states_bytes);
  line("casts", s.casts_bytes);
  line("total", s.weights_bytes + s.gradients_bytes + s.states_bytes + s.casts_bytes);
  if (s.copy_bytes)
    out << "  and in host memory " << mebibytes(s.copy_bytes) << ": the copy that [checkpoint] background saves from\n";
  out << "  activations  not predicted in this version\n";
}

int print_layer(const Arguments& args) {
  if (const std::string name = args.last("--layer"); name != "default")
    throw Failure(mistake("unknown_layer", "no layer `" + name + "` is shipped", {}, "mortise plan --layer default"));
  std::ifstream in(manifest_request(args, "").default_file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (globals().json) std::cout << "{\"layer\":\"default\",\"text\":" << json_string(text) << "}\n";
  else std::cout << text;
  return kExitOk;
}

// Lines of text as a JSON list.
std::string json_lines(const std::vector<std::string>& lines) {
  std::vector<std::string> quoted;
  for (const auto& line : lines) quoted.push_back(json_string(line));
  return "[" + join(quoted, ",\n") + "]";
}

void print_json_plan(const Planned& p, const Summary* s) {
  std::cout << "{\"plan\":" << plan_json(p.plan) << ",\"repeat\":" << json_string(repeat_text(p.plan))
            << ",\"advice\":" << json_lines(advice_of(p.plan, p.manifest, p.catalogue));
  if (s)
    std::cout << ",\"model\":{\"parameters\":" << s->parameters << "},\"length\":{\"steps\":" << s->steps
              << ",\"samples_per_step\":" << s->samples_per_step << ",\"tokens_per_step\":" << s->tokens_per_step
              << ",\"micros\":" << s->micros << ",\"ranks\":" << s->ranks
              << "},\"memory\":{\"weights_bytes\":" << s->weights_bytes << ",\"gradients_bytes\":" << s->gradients_bytes
              << ",\"optimizer_bytes\":" << s->states_bytes << ",\"casts_bytes\":" << s->casts_bytes
              << ",\"copy_bytes\":" << s->copy_bytes << "}";
  std::cout << "}\n";
}

int why(const Plan& plan, const std::string& point) {
  std::ostringstream text;
  if (!print_why(text, plan, point)) {
    const std::string near = nearest(point, plan.points.names());
    throw Failure(mistake("unknown_point", "no point is called `" + point + "`", {},
                          near.empty() ? "mortise points names them all" : "mortise plan --why " + near));
  }
  if (globals().json)
    std::cout << "{\"point\":" << json_string(point) << ",\"lines\":" << json_lines(split(text.str(), '\n')) << "}\n";
  else std::cout << text.str();
  return kExitOk;
}

std::string length_text(const Summary& s) {
  std::ostringstream text;
  text << with_commas(s.steps) << (s.steps == 1 ? " step" : " steps");
  const int64_t tokens = s.steps * s.tokens_per_step;
  if (tokens > 0)
    text << " = " << (tokens < 1'000'000 ? with_commas(tokens) : short_count(static_cast<double>(tokens))) << " tokens";
  if (s.steps_per_epoch > 0)
    text << " = " << std::fixed << std::setprecision(2)
         << static_cast<double>(s.steps) / static_cast<double>(s.steps_per_epoch) << " epochs";
  return text.str();
}

}  // namespace

void print_plan(std::ostream& out, const Planned& p, const Summary& s) {
  out << p.manifest.name << "  (" << layers_text(p.manifest, p.request) << ")   plan " << p.plan.hash << "\n";
  out << "length   " << length_text(s) << "\nbatch    " << s.batch << "\nmodel    " << s.model;
  if (!s.weights.empty()) out << "\nweights  " << s.weights;
  out << "\ndata     " << s.data << "\ndevice   " << s.device << "\nrepeat   " << repeat_text(p.plan) << "\n\n";
  print_structure(out, p.plan, s.details);
  out << "\nparameters\n";
  for (const auto& g : s.groups) out << "  " << g << "\n";
  print_memory(out, s);
  const std::vector<std::string> advice = advice_of(p.plan, p.manifest, p.catalogue);
  if (!advice.empty()) out << "\nadvice\n  " << join(advice, "\n  ") << "\n";
}

int plan(const Arguments& args) {
  if (args.has("--layer")) return print_layer(args);
  const auto planned = make_planned(args, args.positional.empty() ? "run.toml" : args.positional[0]);
  if (args.has("--keys")) {
    print_keys(planned->manifest);
    return kExitOk;
  }
  if (args.has("--why")) return why(planned->plan, args.last("--why"));
  if (args.has("--static")) {
    if (globals().json) print_json_plan(*planned, nullptr);
    else {
      std::ostringstream text;
      print_structure(text, planned->plan);
      std::cout << escape_lines(text.str());
    }
    return kExitOk;
  }
  const Summary s = declared_summary(*planned);
  if (args.has("--weights")) {
    if (globals().json) std::cout << "{\"parameters\":" << json_lines(s.parameter_lines) << "}\n";
    else std::cout << join(s.parameter_lines, "\n") << "\n";
  } else if (globals().json) {
    print_json_plan(*planned, &s);
  } else {
    std::ostringstream text;
    print_plan(text, *planned, s);
    std::cout << escape_lines(text.str());
  }
  return kExitOk;
}

}  // namespace mortise::cli
