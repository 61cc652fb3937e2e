// mortise checkpoint list|verify DIR
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <optional>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/cli/run_directory.hpp"
#include "core/store/folder.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

struct Row {
  Found found;
  std::string saved, size, state, sha256;
  bool damaged = false;
};

std::string saved_at(const std::string& folder) {
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) return "";
  std::tm parts{};
  localtime_r(&info.st_mtime, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

Row row_of(const Found& found, bool newest, std::optional<int64_t> best) {
  Row r{found, saved_at(found.path), "", "verified", "", false};
  try {
    const CheckpointManifest m = verify_checkpoint(found).manifest;
    r.size = byte_size(static_cast<int64_t>(m.bytes()));
    r.sha256 = m.sha256;
    if (newest) r.state += ", latest";
    if (found.step == best) r.state += ", best";
  } catch (const Failure& f) {
    r.damaged = true;
    r.state =
        "damaged: " + fs::path(f.diagnostic.at).lexically_relative(found.path).string() + ": " + f.diagnostic.message;
  }
  return r;
}

void print(const std::vector<Row>& rows) {
  Rows table = {{"step", "saved", "size", "state"}};
  for (const Row& r : rows) table.push_back({std::to_string(r.found.step), r.saved, r.size, escape_control(r.state)});
  print_columns(std::cout, table);
}

void print_json(const std::vector<Row>& rows) {
  Json all = Json::array();
  for (const Row& r : rows)
    all.push_back({{"step", r.found.step},
                   {"path", r.found.path},
                   {"state", r.state},
                   {"verified", !r.damaged},
                   {"sha256", r.sha256}});
  std::cout << text_of({{"checkpoints", all}}) << "\n";
}

}  // namespace

int checkpoint(const Arguments& args) {
  const std::string what = args.positional.empty() ? "" : args.positional[0];
  if (what != "list" && what != "verify")
    throw Failure(mistake("unknown_verb", "`mortise checkpoint` lists or verifies", {},
                          "mortise checkpoint list " + (is_run(what) ? shell_word(what) : "runs/latest")));
  if (args.positional.size() < 2)
    throw Failure(mistake("missing_word", "`mortise checkpoint " + what + "` needs a run directory", {},
                          "mortise checkpoint " + what + " runs/latest"));
  const std::string dir = run_directory_at(args.positional[1], "checkpoint " + what), root = dir + "/checkpoints";
  const CheckpointFolder folder(root);
  std::vector<Row> rows;
  bool newest = true;
  const std::optional<int64_t> best = folder.best();
  for (const Found& found : folder.all()) {
    rows.push_back(row_of(found, newest, best));
    newest = newest && rows.back().damaged;
  }
  if (globals().json) print_json(rows);
  else if (rows.empty())
    std::cout << escape_control(dir)
              << (is_being_trained(dir) ? " has no checkpoint yet\n"
                                        : " has no checkpoint, and no process is training it\n");
  else print(rows);
  const bool is_good = !rows.empty() && std::ranges::none_of(rows, &Row::damaged);
  return what == "verify" && !is_good ? kExitData : kExitOk;
}

}  // namespace mortise::cli
