#include "core/store/checkpoint.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"
#include "core/store/hash.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

using Json = nlohmann::json;
constexpr const char* kManifest = "MANIFEST.json";
// Some ten thousand files; a tree of it takes thirty times as much memory.
constexpr size_t kMaxManifest = size_t{2} << 20;
// A manifest ends with its own hash; what is hashed stands before this.
const std::string kBeforeHash = ",\n \"sha256\": \"", kAfterHash = "\"\n}\n";
constexpr size_t kHashDigits = 64;

[[noreturn]] void damaged(const std::string& at, const std::string& what) {
  throw Failure(trouble(kExitData, "checkpoint_damaged", what, at));
}

[[noreturn]] void refuse(const std::string& what, const char* code) { throw Failure(trouble(kExitIo, code, what)); }

bool is_hash(const Json& j) {
  return j.is_string() && j.get_ref<const std::string&>().size() == kHashDigits &&
         j.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Of JSON's brackets.
int depth_of(std::string_view json) {
  int depth = 0, deepest = 0;
  bool text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (text && c == '\\') ++i;
    if (c == '"') text = !text;
    if (!text && (c == '{' || c == '[')) deepest = std::max(deepest, ++depth);
    if (!text && (c == '}' || c == ']')) --depth;
  }
  return deepest;
}

// The step of a folder's name, or -1. One spelling a step: no sign, no leading zero.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kCheckpoint)) return -1;
  const std::string digits = name.substr(kCheckpoint.size());
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  const int64_t step = std::stoll(digits);
  return std::to_string(step) == digits ? step : -1;
}

std::string name_of(int64_t step) { return std::string(kCheckpoint) + std::to_string(step); }

// Where a checkpoint lies while it is removed.
std::string aside(const fs::path& path) {
  return (path.parent_path() / (std::string(kTemporary) + "old-" + path.filename().string())).string();
}

// What `read` says of a file that cannot be read is damage here.
template <class Read>
auto undamaged(const Read& read) {
  try {
    return read();
  } catch (const Failure& f) {
    damaged(f.diagnostic.at, f.diagnostic.message);
  }
}

void verify_file(const std::string& root, const std::string& path, const CheckpointManifest::File& file,
                 ProgressLine& progress) {
  undamaged([&] {
    RunFile on_disk(root, path);
    if (on_disk.bytes() != file.bytes)
      damaged(on_disk.path(), with_commas(static_cast<int64_t>(on_disk.bytes())) + " bytes, " +
                                  with_commas(static_cast<int64_t>(file.bytes)) + " recorded");
    if (sha256_of_file(on_disk, &progress) != file.sha256)
      damaged(on_disk.path(), "its bytes are not those that were saved");
  });
}

void remove_quietly(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

// What a save or a removal that was cut short left behind may still be known by a checkpoint's name where it counts, on
// the disk: the names first.
void remove_leftover(const fs::path& folder) {
  if (!fs::exists(fs::symlink_status(folder))) return;
  try {
    sync_folder(folder.parent_path().string());
  } catch (const Failure&) {
    return;  // it stays
  }
  remove_quietly(folder.string());
}

}  // namespace

uint64_t CheckpointManifest::bytes() const {
  uint64_t all = 0;
  for (const auto& [path, file] : files) all += file.bytes;
  return all;
}

std::string manifest_text(const CheckpointManifest& m) {
  Json j = {{"mortise", 1}, {"step", m.step}, {"files", Json::object()}, {"plugins", Json::object()}};
  for (const auto& [path, file] : m.files) j["files"][path] = {{"bytes", file.bytes}, {"sha256", file.sha256}};
  for (const auto& [id, plugin] : m.plugins)
    j["plugins"][id] = {{"version", plugin.version}, {"sha256", plugin.sha256}};
  std::string text = j.dump(1);
  text.resize(text.size() - std::strlen("\n}"));
  return text + kBeforeHash + sha256_of(text.data(), text.size()) + kAfterHash;
}

CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string& path) {
  const size_t tail = kBeforeHash.size() + kHashDigits + kAfterHash.size();
  if (text.size() < tail) damaged(path, "it is cut short");
  if (text.size() > kMaxManifest) damaged(path, "it is larger than manifests are");
  const std::string_view body = text.substr(0, text.size() - tail),
                         hash = text.substr(body.size() + kBeforeHash.size(), kHashDigits);
  if (!text.substr(body.size()).starts_with(kBeforeHash) || !text.ends_with(kAfterHash) ||
      hash != sha256_of(body.data(), body.size()))
    damaged(path, "it is not what was written");
  // Nothing lies deeper than a file's hash; towers of brackets would cost far more memory than text.
  if (depth_of(text) > 3) damaged(path, "it is nested deeper than manifests are");
  if (text.find('\0') != text.npos) damaged(path, "it has a NUL, where its parser would stop");
  const Json j = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  CheckpointManifest m;
  m.sha256 = hash;
  if (!j.is_object() || j.value("mortise", Json()) != 1) damaged(path, "it is of another version");
  if (!j.contains("step") || !j["step"].is_number_unsigned() || j["step"].get<uint64_t>() > uint64_t{INT64_MAX} ||
      !j.contains("files") || !j["files"].is_object() || !j.contains("plugins") || !j["plugins"].is_object())
    damaged(path, "it lacks the step, the files or the plugins");
  m.step = j["step"].get<int64_t>();
  for (const auto& [name, file] : j["files"].items()) {
    if (!is_inside(name) || !file.is_object() || !file.contains("bytes") || !file["bytes"].is_number_unsigned() ||
        !file.contains("sha256") || !is_hash(file["sha256"]))
      damaged(path, "the file `" + escape_control(name) + "` is not described as files are");
    m.files[name] = {file["bytes"].get<uint64_t>(), file["sha256"].get<std::string>()};
  }
  for (const auto& [id, plugin] : j["plugins"].items()) {
    if (!plugin.is_object() || !plugin.contains("version") || !plugin["version"].is_string() ||
        !plugin.contains("sha256") || !is_hash(plugin["sha256"]))
      damaged(path, "the plugin `" + escape_control(id) + "` is not described as plugins are");
    m.plugins[id] = {plugin["version"].get<std::string>(), plugin["sha256"].get<std::string>()};
  }
  return m;
}

CheckpointWriter::CheckpointWriter(const std::string& root, int64_t step)
    : root_(root), name_(name_of(step)), folder_(root + "/" + kTemporary + name_) {
  manifest_.step = step;
  make_folder(root_);
  // Even if it was there: who made it may have been stopped before this.
  sync_folder(fs::path(root_).parent_path().string());
  remove_leftover(folder_);
  make_folder(folder_, /*may_exist=*/false);  // nothing of another save among these files
}

CheckpointWriter::~CheckpointWriter() {
  if (!placed_) remove_quietly(folder_);
}

void CheckpointWriter::file(const std::string& path, const std::function<void(const Sink&)>& body) {
  if (const size_t slash = path.rfind('/'); slash != std::string::npos)
    make_folder(folder_ + "/" + path.substr(0, slash));
  OpenFile out(folder_ + "/" + path, name_ + "/" + path);
  Sha256 hash;
  uint64_t bytes = 0;
  body([&](const void* data, size_t n) {
    out.write(data, n);
    hash.add(data, n);
    bytes += n;
  });
  out.finish();
  manifest_.files[path] = {bytes, hash.hex()};
}

void CheckpointWriter::file(const std::string& path, std::string_view text) {
  file(path, [&](const Sink& sink) { sink(text.data(), text.size()); });
}

CheckpointManifest CheckpointWriter::commit(std::map<std::string, SavedPlugin> plugins) {
  manifest_.plugins = std::move(plugins);
  const std::string text = manifest_text(manifest_), place = root_ + "/" + name_;
  const CheckpointManifest m =
      parse_checkpoint_manifest(text, place + "/" + kManifest);  // what cannot be read is not written
  OpenFile out(folder_ + "/" + kManifest, name_ + "/" + kManifest);
  out.write(text.data(), text.size());
  out.finish();
  std::set<std::string> folders;
  for (const auto& [path, file] : manifest_.files)
    if (const size_t slash = path.rfind('/'); slash != std::string::npos) folders.insert(path.substr(0, slash));
  for (const auto& folder : folders) sync_folder(folder_ + "/" + folder);
  sync_folder(folder_);
  // One of this name may be there: damaged and passed over, or of a past that was given up. They change places, so that
  // one of them is there at any time; where a file system cannot do that, the old one goes aside first. It is removed
  // when the new one is there to stay.
  std::string old;
  if (fs::exists(fs::symlink_status(place))) {
    old = folder_;
    if (!exchange_paths(folder_, place)) {
      old = aside(place);
      remove_leftover(old);
      rename_path(place, old);
      try {
        rename_path(folder_, place);
      } catch (...) {
        ::rename(old.c_str(), place.c_str());
        throw;
      }
    }
  } else {
    rename_path(folder_, place);
  }
  placed_ = true;
  sync_folder(root_);
  if (!old.empty()) remove_quietly(old);
  return m;
}

std::vector<Found> checkpoints_in(const std::string& root) {
  std::vector<Found> all;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error))
    if (const int64_t step = step_of(at->path().filename().string()); step >= 0)
      all.push_back({at->path().string(), step});
  if (error && error != std::errc::no_such_file_or_directory)
    refuse(root + " cannot be read: " + error.message(), "not_read");
  std::ranges::sort(all, std::greater(), &Found::step);
  return all;
}

Verified verify_checkpoint(const Found& found) {
  auto in_use = std::make_shared<const FolderLock>(found.path, FolderLock::Kind::kShared);
  const fs::path folder = found.path;
  const std::string root = folder.parent_path().string(), name = folder.filename().string() + "/";
  const std::string manifest = found.path + "/" + kManifest;
  const std::string text = undamaged([&] { return read_run_file(root, name + kManifest, kMaxManifest); });
  const CheckpointManifest m = parse_checkpoint_manifest(text, manifest);
  if (m.step != found.step) damaged(manifest, "it is that of step " + with_commas(m.step));
  ProgressLine progress("checking " + std::to_string(m.files.size()) + " files", m.bytes());
  for (const auto& [path, file] : m.files) verify_file(root, name + path, file, progress);
  return {found, m, std::move(in_use)};
}

std::optional<Verified> newest_checkpoint(const std::string& root,
                                          const std::function<void(const Diagnostic&)>& passed_over) {
  for (const Found& found : checkpoints_in(root)) {
    try {
      return verify_checkpoint(found);
    } catch (const Failure& f) {
      Diagnostic d = as_warning(f.diagnostic, "passed over");
      d.at += ": " + d.message;
      d.message = "step " + with_commas(found.step) + " is not what was saved";
      passed_over(d);
    }
  }
  return std::nullopt;
}

void remove_checkpoint(const Found& found) {
  const FolderLock alone(found.path, FolderLock::Kind::kAlone);
  if (alone.is_refused()) return;
  const std::string old = aside(found.path);
  remove_leftover(old);
  rename_path(found.path, old);
  remove_quietly(old);
}

void remove_leftovers(const std::string& root) {
  std::error_code error;
  std::vector<std::string> leftovers;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with(kTemporary)) leftovers.push_back(at->path().string());
  for (const auto& path : leftovers) remove_leftover(path);
}

void point_at(const std::string& root, const std::string& name, int64_t step) {
  point_link(root + "/" + name, name_of(step));
}

}  // namespace mortise
