#include "core/cli/run_directory.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "core/base/host_name.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/files.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

[[noreturn]] void refuse(const std::string& code, const std::string& message, const Position& at,
                         const std::string& fix) {
  Diagnostic d = mistake(code, message, at, fix);
  d.exit = kExitExists;
  throw Failure(d);
}

[[noreturn]] void not_empty(const fs::path& p, const Manifest& manifest) {
  const Value& stated = manifest.get("run", "dir");
  Diagnostic d =
      mistake("dir_not_empty", p.string() + " is not empty, and holds no run: it has no run.toml of one",
              stated.is_set() ? stated.origin : Position{}, "a folder that is new or empty: --set run.dir=DIR");
  d.effect = "nothing was started: a run would write over files there";
  throw Failure(d);
}

[[noreturn]] void not_made(const fs::path& p, const std::string& why, const Position& at) {
  refuse("dir_not_made", p.string() + " cannot be made: " + why, at, "choose another place: --set run.dir=DIR");
}

// The first free name, made.
fs::path free_name(const fs::path& root, const std::string& name) {
  std::error_code error;
  make_folders(root.string(), error);
  if (error) not_made(root, error.message(), {});
  for (int n = 1;; ++n) {
    const fs::path p = root / (n == 1 ? name : name + "-" + std::to_string(n));
    if (::mkdir(p.c_str(), 0755) == 0) {
      sync_folder(root.string());
      return p;
    }
    if (errno != EEXIST) not_made(p, std::strerror(errno), {});
  }
}

// Nothing is there but what write_file() had begun when a start was cut short.
bool is_empty(const fs::path& dir) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (!it->path().filename().string().starts_with("run.toml.tmp-")) return false;
  if (error) throw Failure(trouble(kExitIo, "no_folder", dir.string() + " cannot be read: " + error.message()));
  return true;
}

// For what the run is made of.
fs::path sources_in(const std::string& dir) {
  make_folder(dir + "/sources");
  sync_folder(dir);
  return dir + "/sources";
}

// Who made it, and was stopped then, may not have put its name on the disk. Where that cannot be asked for, it was made
// by somebody else.
void keep_name(const fs::path& dir) {
  try {
    sync_folder((dir / "").parent_path().parent_path().string());  // of "mine/" too
  } catch (const Failure& f) {
    log(LogLevel::kDebug, f.diagnostic.message);
  }
}

// "finished, step 300", as its status.json says; "" if it does not.
std::string how_it_stands(const fs::path& dir) {
  const auto status = status_of(dir.string());
  return status ? " (" + escape_control(status->state) + ", step " + with_commas(status->step) + ")" : "";
}

// What training writes to, in a directory that may come from somebody else: a link would lead out of it, a FIFO has no
// end. Throws Failure.
void refuse_links(const fs::path& dir) {
  std::error_code error;
  for (const char* name : {"run.toml", "status.json", "log.txt", "metrics.jsonl", "plan.txt", "env.json", "sources",
                           "sources/command.txt", "sources/origins.json", "checkpoints", "checkpoints/abandoned"}) {
    const fs::file_status found = fs::symlink_status(dir / name, error);
    const bool right = fs::path(name).has_extension() ? fs::is_regular_file(found) : fs::is_directory(found);
    if (!fs::exists(found) || right) continue;
    const std::string path = (dir / name).string();
    Diagnostic d =
        trouble(kExitData, "not_a_file", path + (fs::is_symlink(found) ? " is a link" : " is no ordinary file"), "",
                "move it away: mv " + shell_word(path) + " " + shell_word(path + ".old"));
    d.effect = "nothing was started: a run writes there";
    throw Failure(d);
  }
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string directory_of(const Manifest& manifest) {
  const Value& stated = manifest.get("run", "dir");
  if (stated.is_set()) return stated.as_text();
  const char* root = std::getenv("MORTISE_RUNS");
  return (fs::path(root && *root ? root : "runs") / manifest.name).string();
}

bool is_run(const std::string& dir) {
  std::error_code error;
  return fs::exists(dir + "/run.toml", error) &&
         read_run_file(dir, "run.toml", kMostManifestBytes).starts_with(kResolvedMark);
}

std::optional<Status> status_of(const std::string& dir) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  try {
    const auto text = read_run_file_if_any(dir, "status.json", kMostBytes);
    if (!text) return std::nullopt;
    const Json j = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    return Status{j.at("state"),       j.at("step"),
                  j.at("of"),          j.value("resumable", false),
                  j.value("ranks", 0), j.value("local_ranks", 0)};
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const Failure&) {
    return std::nullopt;
  }
}

bool is_being_trained(const std::string& dir) { return FolderLock(dir, FolderLock::Kind::kShared).is_refused(); }

bool has_saved(const std::string& dir) try {
  return !checkpoints_in(dir + "/checkpoints").empty();
} catch (const Failure&) {
  return false;
}

bool was_never_saved(const std::string& dir) {
  const auto status = status_of(dir);
  return status && status->step > 0 && !status->had_saved() && !has_saved(dir);
}

std::string next_name(const std::string& dir) {
  std::error_code error;
  int n = 2;
  while (fs::exists(fs::symlink_status(dir + "-" + std::to_string(n), error))) ++n;
  return dir + "-" + std::to_string(n);
}

RunDirectory::RunDirectory(Taken taken, const Manifest& manifest)
    : path_(std::move(taken.path)), manifest_(manifest), made_(taken.made) {}

RunDirectory::RunDirectory(const Manifest& manifest, const Plan& plan, const ManifestRequest& request, bool again)
    : RunDirectory(take(manifest, again), manifest) {
  const bool alone = lock();
  if (!is_empty(path_)) not_empty(path_, manifest);
  if (alone) remove_begun_files(path_);
  new_ = true;
  record(manifest, plan);
  copy_sources(manifest, request);
}

RunDirectory::RunDirectory(std::string path, const Manifest& manifest)
    : RunDirectory(Taken{std::move(path), false}, manifest) {
  if (!is_run(path_)) not_empty(path_, manifest);
  refuse_links(path_);
  if (lock())
    for (const char* folder : {"", "/sources"}) remove_begun_files(path_ + folder);
  run_toml_ = read_run_file(path_, "run.toml", kMostManifestBytes);
  origins_ = read_run_file_if_any(path_, "sources/origins.json", kMostOriginBytes).value_or("{}\n");
}

void RunDirectory::record(const Manifest& manifest, const Plan& plan) {
  const std::string text = resolved_toml(manifest, plan), origins = origins_json(manifest);
  must_be_readable(path_ + "/run.toml", text, kMostManifestBytes);
  must_be_readable(path_ + "/sources/origins.json", origins, kMostOriginBytes);
  run_toml_ = text;
  origins_ = origins;
  write_record();
}

void RunDirectory::write_record() const {
  write("run.toml", run_toml_);  // first: a process killed now leaves a run, or nothing
  sources_in(path_);
  write("sources/origins.json", origins_);
}

void RunDirectory::add_command(const std::string& command) const {
  std::ofstream(sources_in(path_) / "command.txt", std::ios::app) << command << "\n";
}

bool RunDirectory::lock() {
  lock_.emplace(path_, FolderLock::Kind::kAlone);
  if (!lock_->is_refused()) return lock_->is_held();
  refuse("run_busy", "another process is training " + path_ + how_it_stands(path_), {},
         "wait until it ends, or stop it");
}

void RunDirectory::must_be_here() const {
  if (is_here()) return must_hold_record();
  const std::string now = lock_->path_now();
  const bool removed = now.empty();
  Diagnostic d = trouble(
      kExitIo, "dir_moved",
      path_ + (removed ? " was removed while it was trained in" : " was moved or replaced while it was trained in"), "",
      removed ? "train it again: its checkpoints are gone" : "mortise resume " + shell_word(now) + ranks_flag());
  d.effect = removed ? "stopped; nothing of the run is left" : "stopped; nothing was written to what has that name now";
  throw Failure(d);
}

// Without its manifest, what is saved from here on could not be used.
void RunDirectory::must_hold_record() const {
  if (run_toml_.empty() || ::access((path_ + "/run.toml").c_str(), F_OK) == 0 || errno != ENOENT) return;
  write_record();
  say(as_warning(trouble(kExitOk, "run_emptied", path_ + "/run.toml was removed while it was trained in"),
                 "it was written again; what else is gone stays so"));
}

// It was empty, so what has these names is of this object.
RunDirectory::~RunDirectory() {
  std::error_code ignored;
  if (new_) {
    for (const char* name : {"run.toml", "plan.txt", "env.json", "log.txt", "sources"})
      fs::remove_all(fs::path(path_) / name, ignored);
    if (made_) ::rmdir(path_.c_str());
  }
}

RunDirectory::Taken RunDirectory::take(const Manifest& manifest, bool again) {
  const Value& stated = manifest.get("run", "dir");
  const fs::path wanted = directory_of(manifest);
  if (!stated.is_set() && !again) return {free_name(wanted.parent_path(), manifest.name).string(), true};
  if (is_run(wanted.string()))
    refuse("dir_exists", wanted.string() + " already holds a run" + how_it_stands(wanted), stated.origin,
           "another run.dir; or leave it out and the next free name is taken");
  std::error_code error;
  const bool made = make_folders(wanted.string(), error);
  std::error_code none;
  if (!fs::is_directory(wanted, none)) not_made(wanted, error ? error.message() : "it is no folder", stated.origin);
  if (!made) keep_name(wanted);
  return {wanted.string(), made};
}

// Byte for byte. A file of a name that is taken already gets a number.
void RunDirectory::copy_sources(const Manifest& manifest, const ManifestRequest& request) const {
  const fs::path sources = sources_in(path_);
  for (const std::string& layer : manifest.layers) {
    fs::path from = layer;
    if (layer == "default.toml") from = request.default_file;
    if (layer.starts_with("mortise:")) from = request.shipped_dir + "/" + layer.substr(8) + ".toml";
    std::error_code ignored;
    if (!fs::is_regular_file(from, ignored)) continue;
    fs::path to = sources / from.filename();
    for (int n = 2; fs::exists(to); ++n) to = sources / (from.stem().string() + "-" + std::to_string(n) + ".toml");
    fs::copy_file(from, to, ignored);
  }
}

void RunDirectory::write(const std::string& name, std::string_view text) const { write_file(path_ + "/" + name, text); }

void RunDirectory::begin(int64_t step, int64_t steps) {
  step_ = step;
  steps_ = steps;
  new_ = false;
  status("running", std::nullopt);
  // A hint for people; nothing depends on it.
  std::error_code ignored;
  const fs::path latest = fs::path(path_).parent_path() / "latest";
  if (!fs::exists(fs::symlink_status(latest, ignored)) || fs::is_symlink(latest, ignored)) {
    point_link(latest.string(), fs::path(path_).filename().string());
  }
}

void RunDirectory::progress(int64_t step) {
  step_ = step;
  if (std::chrono::steady_clock::now() - written_ < std::chrono::seconds(2)) return;
  must_be_here();
  status("running", std::nullopt);
}

void RunDirectory::end(int exit, int64_t step) {
  step_ = step;
  const bool stopped = exit == kExitInterrupted || exit == kExitResumable;
  status(exit == kExitOk ? "finished" : stopped ? "stopped" : "failed", exit);
}

// Told to who watches; a disk that is full does not end a training because of it.
void RunDirectory::status(const std::string& state, std::optional<int> exit) {
  written_ = std::chrono::steady_clock::now();
  if (!is_here()) return;
  try {
    const Value &tags = manifest_.get("run", "tags"), &notes = manifest_.get("run", "notes");
    const std::string text = text_of({{"state", state},
                                      {"step", step_},
                                      {"of", steps_},
                                      {"updated", utc_now()},
                                      {"pid", ::getpid()},
                                      {"host", host_name()},
                                      {"ranks", world().size},
                                      {"local_ranks", world().local_size},
                                      {"exit", exit ? Json(*exit) : Json()},
                                      {"resumable", state != "finished" && has_saved(path_)},
                                      {"tags", tags.is_set() ? Json(tags.as_texts()) : Json::array()},
                                      {"notes", notes.is_set() ? Json(notes.as_text()) : Json("")}}) +
                             "\n";
    // How it ended is to stay; what it is doing is old in two seconds, and a sync would hold up the training.
    if (exit) write("status.json", text);
    else show_file(path_ + "/status.json", text);
  } catch (const Failure& f) {
    log(LogLevel::kDebug, f.diagnostic.message);
  }
}

}  // namespace mortise::cli
