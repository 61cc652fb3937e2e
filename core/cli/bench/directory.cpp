#include "core/cli/bench/directory.hpp"

#include <filesystem>

#include "core/base/diagnostic.hpp"
#include "core/store/files.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {

constexpr size_t kMostResultBytes = size_t{64} << 20;

BenchDirectory::BenchDirectory(std::string path) : path_(std::move(path)) {
  std::error_code error, none;
  made_ = make_folders(path_, error);
  if (!fs::is_directory(path_, none))
    throw Failure(trouble(kExitExists, "dir_not_made",
                          path_ + " cannot be made: " + (error ? error.message() : "it is no folder"), "",
                          "another one: -o DIR"));
  lock_.emplace(path_, FolderLock::Kind::kAlone);
  if (lock_->is_refused())
    throw Failure(trouble(kExitExists, "run_busy", "another bench is working in " + path_, "",
                          "wait until it ends, or stop it; or another directory: -o DIR"));
  if (const auto text = read_run_file_if_any(path_, "results.json", kMostResultBytes))
    results_ = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!fs::is_empty(path_) && !(results_.is_object() && results_.contains("rows")))
    throw Failure(mistake("dir_not_empty", path_ + " holds other files, and no results of a bench", {},
                          "another directory: -o DIR"));
  // First: what a process that is killed from here on leaves is known again.
  if (results_.is_null()) write_file(path_ + "/results.json", "{\"rows\":[]}\n");
  make_folder(path_ + "/rows");
}

BenchDirectory::~BenchDirectory() {
  std::error_code ignored;
  if (made_ && !kept_) fs::remove_all(path_, ignored);
}

void BenchDirectory::write(const Bench& bench) const {
  write_file(path_ + "/results.json", results_json(bench).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  write_file(path_ + "/table.md", table_markdown(bench));
  write_file(path_ + "/report.html", report_html(bench));
}

}  // namespace mortise::cli
