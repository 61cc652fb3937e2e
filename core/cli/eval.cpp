// mortise eval DIR|RUN
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/assemble/run.hpp"
#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/manifest/path.hpp"
#include "core/plan/compute_dtype.hpp"
#include "core/store/folder.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

const PluginInfo& provider_of(const Plan& plan, Point point) {
  return *plan.members[static_cast<size_t>(plan.at[point].providers.back().member)].info;
}

// [data] SPLIT = "KEY" of plugin.toml says which key holds the files of a split; `path`, if there is one, is put there.
void measure_on(Planned& p, const std::string& split, const std::string& path) {
  const PluginInfo& data = provider_of(p.plan, kData);
  const std::string& id = data.schema.id;
  const Value* key = fact_of(data, "data", split);
  if (!key && split != "validation")
    throw Failure(
        mistake("no_split", id + " knows no split `" + split + "`", {}, "any file can be measured on: --data FILE"));
  if (path.empty()) return;
  if (!key)
    throw Failure(mistake("no_split", id + " reads no file to measure on", {"command line: --data " + path, 0, 0, ""},
                          "leave out --data"));
  const auto table = std::ranges::find(p.manifest.plugins, id, [](const PluginTable& t) { return t.schema->id; });
  Value& value = table->values[key->as_text()];
  value = {path, {"command line: --data " + path, 0, 0, id + "." + key->as_text()}};
  if (data.schema.config.keys.at(key->as_text()).type.starts_with("list<")) value.data = std::vector<Value>{value};
  Report report;
  resolve_paths(value, current_folder(), report);
  if (!report.has_errors()) return;
  say(report, "nothing was started.");
  throw Failed{report.exit_code()};
}

// "checkpoints/best (step 1,408)"
std::string checkpoint_text(const std::string& dir, const Verified& checkpoint, const std::string& asked) {
  const std::string name = fs::path(checkpoint.path).filename().string();
  if ((asked.empty() || asked == "best") && CheckpointFolder(dir + "/checkpoints").best() == checkpoint.step)
    return "checkpoints/best (step " + with_commas(checkpoint.step) + ")";
  return "checkpoints/" + name;
}

// Where nothing is there to measure on.
std::vector<std::string> ways_to_measure(const Plan& plan, const std::string& source, const std::string& split,
                                         bool is_run) {
  std::vector<std::string> ways;
  const bool reads = fact_of(provider_of(plan, kData), "data", split) != nullptr;
  if (reads) ways.push_back("mortise eval " + shell_word(source) + " --data FILE");
  if (!reads || !is_run)
    ways.push_back(std::string(is_run ? "a new run with " : "") +
                   "a share of the training data: [data] validation = 0.1");
  return ways;
}

void print_json(const Measured& m, const std::string& source, const Json& checkpoint, const std::string& split) {
  Json all = {{"source", source}, {"checkpoint", checkpoint}, {"split", split}, {"data", m.about}};
  for (const auto& [name, value] : m.values) all[name] = value;  // null if it is not finite
  all["samples"] = m.samples;
  all["tokens"] = m.tokens;
  all["seconds"] = m.seconds;
  std::cout << text_of(all) << "\n";
}

}  // namespace

int eval(const Arguments& args) {
  std::error_code error;  // of a name that is none: it is read as a manifest's, which says so
  const bool is_dir = fs::is_directory(args.positional[0], error);
  const fs::path named = args.positional[0];
  const bool is_none = fs::symlink_status(named, error).type() == fs::file_type::not_found &&
                       named.extension() != ".toml";  // a run directory whose name is mistyped
  const std::string source = is_dir || is_none ? run_directory_at(args.positional[0], "eval") : args.positional[0],
                    asked = args.last("--checkpoint"), split = args.last("--split", "validation");
  if (!is_dir && !asked.empty())
    throw Failure(mistake("not_a_run", "--checkpoint is of a run directory, " + source + " is a manifest", {},
                          "leave it out: [model] weights says which"));
  PlanSource read = is_dir ? source_of_run(source) : source_named(source, "eval");
  read.weights = !is_dir;
  const auto planned = make_planned(args, read);
  if (!is_dir && planned->weights.empty())
    throw Failure(mistake("no_weights", source + " names no weights to measure", {},
                          "[model] weights = \"FOLDER\", or a run directory: mortise eval runs/latest"));
  measure_on(*planned, split, args.last("--data"));
  settle_device(*planned);
  std::unique_ptr<Run> run;
  Verified checkpoint;
  const auto make = [&](const Verified& from) {
    checkpoint = from;
    run = make_run(*planned, {.purpose = Purpose::kUse, .checkpoint = from, .split = split});
  };
  // Of several ranks the first one has the checkpoint. They meet once: nobody looks for another one then.
  if (!is_dir || world().rank > 0) make({});
  else if (world().size > 1) make(checkpoint_of(source, asked));
  else with_checkpoint(source, asked, make);
  if (!args.has("--data")) say_warnings(run->summary().warnings);
  const Measured m = run->evaluate();  // of all ranks, on each of them
  if (m.samples == 0)
    throw Failure(mistake("no_validation_data", source + " has no " + split + " data", {},
                          join(ways_to_measure(planned->plan, source, split, is_dir), ", or ")));
  if (!m.is_counted)
    throw Failure(trouble(kExitData, "no_targets", "no sample of the " + split + " data has a target to measure",
                          m.about, "labels other than -100: is a prompt longer than data.sequence_length?"));
  if (world().rank > 0) return kExitOk;
  if (globals().json) {
    print_json(m, source, is_dir ? Json(checkpoint.path) : Json(), split);
    return kExitOk;
  }
  const std::string said = planned_compute_dtype(planned->plan, MORTISE_EVAL);
  const std::string dtype = said.empty() ? run->summary().widest : said;
  std::vector<std::string> values;
  for (const auto& [name, value] : m.values) values.push_back(name + " " + fmt::format("{:.4g}", value));
  const std::string ranks = world().size > 1 ? fmt::format(" × {} ranks", world().size) : "";
  std::cout << fmt::format("{}, {}      {}, {}{}\n{}          {}, batch {}{}, {:.1f}s\n", escape_control(source),
                           is_dir ? checkpoint_text(source, checkpoint, asked) : "weights " + run->summary().weights,
                           m.about, with_commas(m.samples), m.samples == 1 ? " sample" : " samples",
                           join(values, "   "), dtype, planned->manifest.get("eval", "micro_batch_size").as_int(),
                           ranks, m.seconds);
  return kExitOk;
}

}  // namespace mortise::cli
