// Checkpoints: folders step-N in one folder, each of which is complete or absent, whenever the machine stops.
//
// A save writes a folder .tmp-step-N: every file synced, a MANIFEST.json with their sizes and hashes and its own, the
// folders synced, one rename, the parent synced. Only then is it saved. Who reads takes the newest folder whose files
// are, bit for bit, what its manifest says.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/store/files.hpp"
#include "core/store/folder_lock.hpp"

namespace mortise {

// A plugin that had a part in what is stored.
struct SavedPlugin {
  std::string version, sha256;  // of its library
};

constexpr std::string_view kCheckpoint = "step-";  // and the step

// What MANIFEST.json says. Nothing in it depends on when, where or by which process it was written.
struct CheckpointManifest {
  struct File {
    uint64_t bytes = 0;
    std::string sha256;
  };
  int64_t step = 0;
  std::map<std::string, File> files;  // by path within the folder
  std::map<std::string, SavedPlugin> plugins;
  std::string sha256;  // of the manifest itself, and so of everything
  uint64_t bytes() const;
};
std::string manifest_text(const CheckpointManifest& m);
// Throws Failure (exit 65): not what manifest_text writes.
CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string& path);

class CheckpointWriter {
 public:
  // `root` is made if it is missing. Everything here throws Failure (exit 74); a writer that was not committed leaves
  // nothing.
  CheckpointWriter(const std::string& root, int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void file(const std::string& path, const std::function<void(const Sink&)>& body);  // "model/model.safetensors"
  void file(const std::string& path, std::string_view text);
  // When it returns, the checkpoint will be found again.
  CheckpointManifest commit(std::map<std::string, SavedPlugin> plugins);

 private:
  std::string root_, name_, folder_;
  CheckpointManifest manifest_;
  bool placed_ = false;
};

struct Found {
  std::string path;  // of the folder
  int64_t step = 0;
};
// One whose bytes are those that were saved. A training beside the reader does not retire it as long as this is there.
struct Verified : Found {
  CheckpointManifest manifest;
  std::shared_ptr<const FolderLock> in_use;
};
// What there is, the newest first; no file is read. Throws Failure (exit 74): it cannot be said, which is not the same
// as none.
std::vector<Found> checkpoints_in(const std::string& root);
// Reads every byte. Throws Failure (code checkpoint_damaged, exit 65) that names the first file which is not what was
// saved.
Verified verify_checkpoint(const Found& found);
// The newest that verifies; each damaged one before it is told.
std::optional<Verified> newest_checkpoint(const std::string& root,
                                          const std::function<void(const Diagnostic&)>& passed_over);
// Takes one away at once, by a rename, before its files go. One that somebody reads stays.
void remove_checkpoint(const Found& found);
// Leftovers of saves and removals that were cut short.
void remove_leftovers(const std::string& root);
// Points the link root/name at the checkpoint of a step, as point_link() does.
void point_at(const std::string& root, const std::string& name, int64_t step);

}  // namespace mortise
