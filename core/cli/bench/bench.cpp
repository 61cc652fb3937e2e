// mortise bench [RUN|MATRIX]: one row a combination of tables, each trained in a fresh process; a table, a plot, and
// how they were taken. It computes nothing itself.
#include <spdlog/fmt/fmt.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <thread>

#include "core/base/text.hpp"
#include "core/cli/bench/directory.hpp"
#include "core/cli/bench/identity.hpp"
#include "core/cli/bench/matrix.hpp"
#include "core/cli/bench/rows.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"
#include "core/cli/signals.hpp"
#include "core/manifest/layers.hpp"
#include "core/manifest/path.hpp"
#include "core/manifest/vocabulary.hpp"
#include "core/plugin/load.hpp"
#include "core/store/files.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

// ---- what is to be measured ----

int64_t steps_asked(const Arguments& args) {
  const std::string text = args.last("--steps", "0");
  int64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || steps < 0 || (args.has("--steps") && steps == 0))
    throw Failure(mistake("wrong_type", "--steps is a number of steps, this is `" + text + "`", {}, "--steps 20"));
  return steps;
}

// The flags that every row is trained with, as they were typed.
std::vector<std::string> layer_words(const Arguments& args) {
  std::vector<std::string> words;
  for (const Flag& flag : layer_flags())
    for (const std::string& value : args.all(flag.name)) words.insert(words.end(), {flag.name, value});
  if (const int64_t steps = steps_asked(args))
    words.insert(words.end(), {"--set", "run.length=" + std::to_string(steps)});
  if (globals().strict) words.push_back("--strict");
  return words;
}

// What manifests are read against; what is wrong with plugins, the rows will find.
struct Reader {
  std::map<std::string, PluginInfo> plugins;
  std::map<std::string, PluginSchema> schemas;
  ManifestRequest request;
  Reader(const Arguments& args, const std::string& file) : request(manifest_request(args, file)) {
    Report quiet;
    plugins = catalogue(args, &request, request.searched, quiet);
    for (const auto& [id, info] : plugins) schemas[id] = info.schema;
    for (const Diagnostic& d : quiet.all())
      if (!schemas.contains(d.plugin)) request.refused.insert(d.plugin);
    request.catalogue = &schemas;
    if (const int64_t steps = steps_asked(args)) request.set.push_back("run.length=" + std::to_string(steps));
  }
};

[[noreturn]] void refuse(const Report& report) {
  say(report, "nothing was started.");
  throw Failed{report.exit_code()};
}

Matrix read_matrix_file(const Arguments& args, const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw Failure(mistake("file_missing", "no file `" + file + "`", {},
                          "a matrix, or a manifest: mortise bench " + installation().share + "/bench/quick.toml"));
  const std::string path = fs::absolute(file).lexically_normal();
  Report report;
  const std::optional<TomlTable> root = read_toml(path, file, report);
  if (!root) refuse(report);
  const std::string stem = fs::path(path).stem();
  if (!is_matrix(*root)) return {path, {file, 0, 0}, 2, {{stem, stem}}};  // a manifest, which is a row
  const TomlNode* base = root->find("base");
  const std::string* below = base ? base->text() : nullptr;
  const fs::path folder = fs::path(path).parent_path();
  const Reader reader(args, below ? (folder / *below).string() : "");
  const Vocabulary words(reader.request);
  const IsPath is_path = [&](const std::string& key) {
    const size_t dot = key.rfind('.');
    const KeySchema* schema = dot == key.npos ? nullptr : words.key(key.substr(0, dot), key.substr(dot + 1));
    return schema && schema->type.find("path") != std::string::npos;
  };
  Matrix matrix = matrix_of(*root, folder, is_path, report);
  if (report.has_errors()) refuse(report);
  for (MatrixRow& row : matrix.rows) row.program = program_named(row.program);
  return matrix;
}

// ---- mistakes in rows ----

// What is said of the manifest of a row is said of the matrix.
Position in_matrix(const Position& at, const Matrix& matrix, const BenchDirectory& directory) {
  if (at.file == matrix.base) {
    Position shown = at;
    shown.file = fs::path(at.file).lexically_proximate(current_folder()).string();
    return shown;
  }
  for (const MatrixRow& row : matrix.rows) {
    const int line = at.line - kFirstRowLine;
    if (at.file != directory.manifest(row.file) || line < 0 || static_cast<size_t>(line) >= row.lines.size()) continue;
    const RowLine& found = row.lines[static_cast<size_t>(line)];
    const bool is_value = static_cast<size_t>(at.column) > found.text.find(" = ") + 1;
    return position(is_value ? found.value : found.key, at.key);
  }
  return at;
}

// What is written wrong stops everything before it starts; what does not go together, or cannot run here, only its row.
void refuse_mistakes(const Matrix& matrix, const BenchDirectory& directory, Reader& reader) {
  Report all;
  std::set<std::string> seen;
  for (const MatrixRow& row : matrix.rows) {
    Report report;
    reader.request.file = directory.manifest(row.file);
    read_manifest(reader.request, report);
    for (Diagnostic d : report.all()) {
      if (d.level != Level::kError) continue;
      for (Position& at : d.positions) at = in_matrix(at, matrix, directory);
      d.source_line.clear();
      if (seen.insert(d.code + d.message + (d.positions.empty() ? "" : d.positions[0].text())).second)
        all.add(std::move(d));
    }
  }
  if (all.has_errors()) refuse(all);
}

// Of every byte that the numbers of a row depend on and that this program sees.
std::string key_of(const MatrixRow& row, const ManifestRequest& request, const std::vector<std::string>& words,
                   int64_t warmup) {
  Report known;
  std::string all = std::string(MORTISE_VERSION) + "\n" + row.program + "\n" + join(words, "\n") + "\n" +
                    std::to_string(warmup) + "\n";
  for (const Layer& layer : read_layers(request, known)) all += layer.name + "\n" + join(layer.lines, "\n") + "\n";
  return fmt::format("{:016x}", hash_text(all));
}

Bench bench_of(const std::string& file, const Matrix& matrix) {
  utsname system{};
  ::uname(&system);
  Bench b;
  b.name = fs::path(file).stem();
  b.matrix = file;
  b.command = globals().command;
  b.mortise = MORTISE_VERSION;
  b.abi = abi_text(kOurAbi);
  b.began = b.ended = utc_now();
  b.host = system.nodename;
  b.system = std::string(system.sysname) + " " + system.release + " " + system.machine;
  b.processor = processor_name();
  b.cpus = std::thread::hardware_concurrency();
  b.warmup = matrix.warmup;
  return b;
}

// Rows that were measured before, with all the same. Those of another build or machine are not: how many.
struct Others {
  size_t of_build = 0, of_machine = 0;
};

Others take_measured(const Json& results, Bench& bench) {
  Others others;
  try {
    for (const Json& json : results.at("rows")) {
      const Measure before = measure_of(json);
      for (Measure& row : bench.rows) {
        if (!before.is_measured() || row.name != before.name || row.key != before.key) continue;
        if (row.machine != before.machine || row.build != before.build) {
          ++(row.machine != before.machine ? others.of_machine : others.of_build);
          continue;
        }
        const std::string file = row.file;
        row = before;
        row.file = file;
      }
    }
    if (bench.missing() < bench.rows.size()) bench.began = results.at("began");
  } catch (const Json::exception&) {
    // Of somebody else's making: what cannot be read is measured again.
  }
  return others;
}

void say_others(const Others& others) {
  if (globals().quiet || globals().json) return;
  for (const auto& [rows, by] : {std::pair(others.of_build, "by another build of Mortise, of a plugin or of a program"),
                                 std::pair(others.of_machine, "on another machine or device")})
    if (rows)
      std::cerr << rows << (rows == 1 ? " row was" : " rows were") << " measured " << by
                << (rows == 1 ? ": it is measured again\n" : ": they are measured again\n");
}

// ---- the verb ----

std::string shown(const std::string& path) {
  const std::string near = fs::path(path).lexically_proximate(current_folder()).string();
  return escape_control(near.starts_with("..") ? path : near);
}

int finish(const Bench& bench, const BenchDirectory& directory, size_t before) {
  const auto failed = static_cast<size_t>(std::ranges::count(bench.rows, "failed", &Measure::state));
  const std::string dir = shown(directory.path());
  if (globals().json) std::cout << text_of(results_json(bench)) << "\n";
  else if (!globals().quiet)
    std::cout << fmt::format(
        "{} of {} rows measured{}, each in a fresh process, {} warm-up steps apart · report {}/report.html · table "
        "{}/table.md\n",
        bench.rows.size() - failed - bench.missing(), bench.rows.size(),
        before ? fmt::format(" ({} before)", before) : "", bench.warmup, dir, dir);
  if (bench.missing() > 0) {
    if (!globals().quiet && !globals().json) std::cerr << "stopped; the missing rows: " << globals().command << "\n";
    return end_asked() == SIGTERM ? kExitResumable : kExitInterrupted;
  }
  return failed > 0 ? kExitNo : kExitOk;
}

}  // namespace

int bench(const Arguments& args) {
  handle_signals(/*says=*/!globals().quiet && !globals().json);
  const std::string file = args.positional.empty() ? "run.toml" : args.positional[0];
  const Matrix matrix = read_matrix_file(args, file);
  const char* root = std::getenv("MORTISE_RUNS");
  const fs::path wanted = args.last("-o", (fs::path(root && *root ? root : "runs") / fs::path(file).stem()).string());
  BenchDirectory directory((fs::absolute(wanted) / "").lexically_normal().parent_path().string());
  for (const MatrixRow& row : matrix.rows) write_file(directory.manifest(row.file), manifest_of_row(matrix, row));
  Reader reader(args, matrix.base);
  refuse_mistakes(matrix, directory, reader);

  const std::vector<std::string> words = layer_words(args);
  Bench bench = bench_of(file, matrix);
  const std::string machine = machine_of(reader.plugins);
  std::map<std::string, std::string> builds;  // by the program
  for (const MatrixRow& row : matrix.rows) {
    if (!row.is_measured) continue;
    Measure& measure = bench.rows.emplace_back();
    measure.name = row.name;
    measure.file = row.file;
    reader.request.file = directory.manifest(row.file);
    measure.key = key_of(row, reader.request, words, matrix.warmup);
    measure.machine = machine;
    std::string& build = builds[row.program];
    if (build.empty()) build = build_of(reader.plugins, row.program);
    measure.build = build;
  }
  if (!args.has("--anew")) say_others(take_measured(directory.results(), bench));
  const size_t before = bench.rows.size() - bench.missing();
  directory.keep();
  directory.write(bench);
  measure_rows(matrix, directory, words, bench);
  return finish(bench, directory, before);
}

}  // namespace mortise::cli
