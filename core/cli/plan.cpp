// mortise plan [RUN]: what manifests alone say, or, asked of the plugins, all that is known before a run.
#include <spdlog/fmt/fmt.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "core/abi/edge.hpp"
#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/cli/launcher.hpp"
#include "core/cli/print.hpp"
#include "core/cli/run_directory.hpp"
#include "core/declare/summary.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise::cli {
namespace {

// "default: the model's context", of a key that says so and has no value: what it follows is known later.
std::string unset_default(const TableSchema& schema, const std::string& key) {
  constexpr std::string_view kSays = "By default ";
  const auto found = schema.keys.find(key);
  const std::string doc = found == schema.keys.end() ? "" : found->second.doc;
  const size_t at = doc.find(kSays);
  if (at == std::string::npos) return "";
  const std::string said = doc.substr(at + kSays.size());
  return "default: " + said.substr(0, said.size() - (said.ends_with('.') ? 1 : 0));
}

void print_keys(const Manifest& m, const Plan& plan) {
  std::vector<Json> keys;
  const auto line = [&](const std::string& key, const Value& v, const std::string& unset = "") {
    const std::string from = v.origin ? v.origin.text() : unset.empty() ? "default" : unset;
    if (globals().json) keys.push_back({{"key", key}, {"value", v.is_set() ? Json(v.text()) : Json()}, {"from", from}});
    else std::cout << fmt::format("  {:<36} {:<28} {}\n", key, v.is_set() ? v.text() : "-", escape_control(from));
  };
  for (const auto& [table, values] : m.tables)
    for (const auto& [key, v] : values) {
      const Value own = v.is_set() ? v : family_default(m, table, key);
      line(table + "." + key, own, own.is_set() ? "" : unset_default(core_schema().tables.at(table), key));
    }
  for (const auto& p : m.plugins)
    for (const auto& [key, v] : p.values)
      line(p.schema->id + "." + key, v, v.is_set() ? "" : unset_default(p.schema->config, key));
  for (const Member& member : plan.members)  // which no table names
    if (!member.table)
      for (const auto& [key, schema] : member.info->schema.config.keys)
        line(member.info->schema.id + "." + key, schema.default_value, unset_default(member.info->schema.config, key));
  for (const auto& r : m.rules)
    for (const auto& [key, v] : r.values) line("parameters." + r.name + "." + key, v);
  if (globals().json) std::cout << list_text("keys", keys);
}

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1024.0 * 1024.0)); }

void print_memory(std::ostream& out, const Summary& s) {
  out << "\nmemory, MiB, exact from the declarations\n";
  const auto line = [&](const char* what, int64_t bytes, const char* of = "") {
    out << fmt::format("  {:<13}{:>10}{}{}\n", what, mebibytes(bytes), *of ? "   " : "", of);
  };
  line("weights", s.weights_bytes, "masters, which the optimizer updates; of what is frozen its values");
  line("gradients", s.gradients_bytes);
  line("optimizer", s.states_bytes, "its states, and what plugins keep beside parameters");
  line("casts", s.casts_bytes, "copies of masters that operators read");
  if (s.workspaces_bytes) line("workspaces", s.workspaces_bytes, "of libraries and kernels");
  if (s.transient_bytes) line("gathered", s.transient_bytes, "at most: what ranks have in parts, whole for a while");
  line("total",
       s.weights_bytes + s.gradients_bytes + s.states_bytes + s.casts_bytes + s.workspaces_bytes + s.transient_bytes);
  if (s.host_bytes)
    out << "  and in host memory " << mebibytes(s.host_bytes)
        << ": masters, states and buffers of what is updated there\n";
  if (s.stored_bytes)
    out << "  and with " << s.stored_by << " " << mebibytes(s.stored_bytes)
        << ": states, in memory only while updated\n";
  if (s.copy_bytes)
    out << "  and in host memory " << mebibytes(s.copy_bytes) << ": the copy that [checkpoint] background saves from\n";
  out << "  activations  not predicted in this version\n";
  if (s.ranks > 1)
    out << fmt::format("\nranks\n  each of {} has this memory at most, and sends {} MiB a step, {}{}\n", s.ranks,
                       mebibytes(s.sent_bytes), s.sends_values ? "gradients and values" : "gradients",
                       s.axes.empty() ? "" : "; what layers send is not counted");
  if (!s.parts.empty()) out << "  " << s.parts << "\n";
  for (const auto* lines : {&s.axes, &s.proof})
    for (const std::string& text : *lines) out << "  " << text << "\n";
}

int print_layer(const Arguments& args) {
  if (const std::string name = args.last("--layer"); name != "default")
    throw Failure(mistake("unknown_layer", "no layer `" + name + "` is shipped", {}, "mortise plan --layer default"));
  std::ifstream in(manifest_request(args, "").default_file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (globals().json) std::cout << text_of({{"layer", "default"}, {"text", text}}) << "\n";
  else std::cout << text;
  return kExitOk;
}

int why(const Plan& plan, const std::string& point) {
  std::ostringstream text;
  if (!print_why(text, plan, point)) {
    const std::string near = nearest(point, plan.points.names());
    throw Failure(mistake("unknown_point", "no point is called `" + point + "`", {},
                          near.empty() ? "mortise points names them all" : "mortise plan --why " + near));
  }
  if (globals().json) std::cout << text_of({{"point", point}, {"lines", split(text.str(), '\n')}}) << "\n";
  else std::cout << text.str();
  return kExitOk;
}

std::string length_text(const Summary& s) {
  std::string text = with_commas(s.steps) + (s.steps == 1 ? " step" : " steps");
  // The last step of an epoch may be shorter.
  const double epochs = s.steps_per_epoch > 0 ? static_cast<double>(s.steps / s.steps_per_epoch) : 0,
               samples = epochs * static_cast<double>(s.samples_per_epoch) +
                         static_cast<double>((s.steps_per_epoch > 0 ? s.steps % s.steps_per_epoch : s.steps) *
                                             s.samples_per_step);
  const double tokens =
      s.samples_per_step > 0 ? samples * static_cast<double>(s.tokens_per_step / s.samples_per_step) : 0;
  if (tokens > 0)  // samples may be shorter than data.sequence_length
    text += fmt::format(" of at most {} tokens = {}", with_commas(s.tokens_per_step),
                        tokens < 1e6 ? with_commas(static_cast<int64_t>(tokens)) : short_count(tokens));
  if (s.steps_per_epoch > 0)
    text += fmt::format(" = {:.2f} epochs", static_cast<double>(s.steps) / static_cast<double>(s.steps_per_epoch));
  return text;
}

// Who does what, without a line of a plugin's code; and what a plan says beyond that.
void print_static(const Planned& p) {
  std::cout << fmt::format("{}  ({})   plan {}\n\n", p.manifest.name, layers_text(p.manifest), p.plan.hash);
  print_structure(std::cout, p.plan, {}, terminal_width(STDOUT_FILENO));
  const int ranks = world().size;
  std::cout << "\nleft out: length, batch, data, device, parameters and memory, which plugins say: mortise plan "
            << shell_word(p.manifest.path) << (ranks > 1 ? " --ranks " + std::to_string(ranks) : "") << "\n";
}

}  // namespace

void print_plan(std::ostream& out, const Planned& p, const Summary& s, size_t width) {
  out << p.manifest.name << "  (" << layers_text(p.manifest) << ")   plan " << p.plan.hash << "\n";
  out << "length   " << length_text(s) << "\nbatch    " << s.batch << "\nmodel    " << s.model;
  if (!s.weights.empty()) out << "\nweights  " << s.weights;
  out << "\ndata     " << s.data << "\ndevice   " << s.device << "\nrepeat   " << repeat_text(p.plan) << "\n\n";
  print_structure(out, p.plan, s.details, width);
  out << "\nparameters\n";
  for (const auto& g : s.groups) out << "  " << g << "\n";
  out << "  " << s.dtypes << "\n";
  print_memory(out, s);
  const std::vector<std::string> advice = advice_of(p.plan, p.manifest, p.catalogue, s.advice);
  if (!advice.empty()) out << "\nadvice\n  " << join(advice, "\n  ") << "\n";
}

void print_json_plan(const Planned& p, const Summary* s) {
  Json all = {{"plan", plan_json(p.plan)},
              {"repeat", repeat_text(p.plan)},
              {"advice", advice_of(p.plan, p.manifest, p.catalogue, s ? s->advice : std::vector<std::string>())}};
  if (s) {
    all["model"] = {{"parameters", s->parameters}, {"dtypes", s->dtypes}, {"flop_per_token", s->flop_per_token}};
    all["length"] = {{"steps", s->steps},
                     {"samples_per_step", s->samples_per_step},
                     {"tokens_per_step", s->tokens_per_step},
                     {"micros", s->micros},
                     {"ranks", s->ranks},
                     {"sent_bytes", s->sent_bytes},
                     {"parts", s->parts},
                     {"axes", s->axes},
                     {"proof", s->proof}};
    all["memory"] = {{"weights_bytes", s->weights_bytes},       {"gradients_bytes", s->gradients_bytes},
                     {"optimizer_bytes", s->states_bytes},      {"casts_bytes", s->casts_bytes},
                     {"workspaces_bytes", s->workspaces_bytes}, {"copy_bytes", s->copy_bytes},
                     {"transient_bytes", s->transient_bytes},   {"host_bytes", s->host_bytes},
                     {"stored_bytes", s->stored_bytes}};
  }
  std::cout << text_of(all) << "\n";
}

PlanSource source_of_plan(const Arguments& args) {
  return source_named(args.positional.empty() ? "run.toml" : args.positional[0], "plan");
}

int plan(const Arguments& args) {
  if (args.has("--layer")) return print_layer(args);
  if (args.has("--ranks")) plan_for(ranks_of_flag(args));
  const auto planned = make_planned(args, source_of_plan(args));
  if (args.has("--why")) return why(planned->plan, args.last("--why"));
  if (args.has("--keys")) {
    print_keys(planned->manifest, planned->plan);
    return kExitOk;
  }
  if (args.has("--static")) {
    if (globals().json) print_json_plan(*planned, nullptr);
    else print_static(*planned);
    return kExitOk;
  }
  const Summary s = declared_summary(*planned);
  say_warnings(s.warnings);
  const std::vector<std::string>& lines = s.parameter_lines;
  std::ostringstream text;
  if (args.has("--weights"))
    text << (globals().json ? list_text("parameters", {lines.begin(), lines.end()}) : join(lines, "\n") + "\n");
  else if (globals().json) print_json_plan(*planned, &s);
  else print_plan(text, *planned, s, terminal_width(STDOUT_FILENO));
  std::cout << escape_lines(text.str());
  return kExitOk;
}

}  // namespace mortise::cli
