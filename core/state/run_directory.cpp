#include "core/state/run_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/state/files.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

[[noreturn]] void refuse(const std::string& code, const std::string& message, const std::vector<Position>& at, const std::string& fix) {
  Diagnostic d;
  d.code = code;
  d.message = message;
  d.positions = at;
  d.fixes = {fix};
  d.exit = kExitExists;
  throw Failure(d);
}

// True if this process made it.
bool make(const fs::path& p) {
  if (::mkdir(p.c_str(), 0755) == 0) return true;
  if (errno == EEXIST) return false;
  refuse("dir_not_made", p.string() + " cannot be made: " + std::strerror(errno), {}, "choose another place: --set run.dir=DIR");
}

std::string take_free(const fs::path& root, const std::string& name) {
  fs::create_directories(root);
  for (int n = 1;; ++n) {
    const fs::path p = root / (n == 1 ? name : name + "-" + std::to_string(n));
    if (make(p)) return p.string();
  }
}

// A hint for people; nothing depends on it.
void point_latest(const fs::path& root, const fs::path& dir) {
  std::error_code ignored;
  fs::remove(root / "latest", ignored);
  fs::create_directory_symlink(dir.filename(), root / "latest", ignored);
}

}  // namespace

RunDirectory::RunDirectory(const Manifest& manifest, const ManifestRequest& request) {
  const Value& stated = manifest.get("run", "dir");
  if (stated.is_set()) {
    const fs::path dir = stated.as_text();
    if (fs::exists(dir / "run.toml"))
      refuse("dir_exists", dir.string() + " already holds a run", {stated.origin}, "another run.dir; or leave it out and the next free name is taken");
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) refuse("dir_not_made", dir.string() + " cannot be made: " + error.message(), {stated.origin}, "choose another place: --set run.dir=DIR");
    path_ = dir.string();
  } else {
    const char* root = std::getenv("MORTISE_RUNS");
    path_ = take_free(root && *root ? root : "runs", manifest.name);
    point_latest(fs::path(path_).parent_path(), path_);
  }
  write_file(path_ + "/run.toml", resolved_toml(manifest));
  fs::create_directories(path_ + "/sources");
  for (const std::string& file : {request.file, request.default_file}) {
    std::error_code ignored;
    if (!file.empty()) fs::copy_file(file, path_ + "/sources/" + fs::path(file).filename().string(), fs::copy_options::overwrite_existing, ignored);
  }
}

void RunDirectory::begin(int64_t steps) {
  steps_ = steps;
  status("running", "null");
}

void RunDirectory::end(int exit) { status(exit == kExitOk ? "finished" : "stopped", std::to_string(exit)); }

void RunDirectory::status(const std::string& state, const std::string& exit) {
  write_file(path_ + "/status.json", "{\"state\":" + json_string(state) + ",\"of\":" + std::to_string(steps_) + ",\"pid\":" + std::to_string(::getpid()) + ",\"exit\":" + exit + "}\n");
}

}  // namespace mortise
