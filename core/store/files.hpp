// Files and folders that appear whole or not at all, and the calls beneath: short writes and interruptions are gone on
// from, everything else throws.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace mortise {

// Takes the next bytes of a file.
using Sink = std::function<void(const void* data, size_t bytes)>;

// A file under a name of its own until it is complete. Throws Failure (exit 74) naming `shown` and the system's reason.
class OpenFile {
 public:
  OpenFile(const std::string& path, std::string shown);  // new or empty
  ~OpenFile();                                           // not finished: removed
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void write(const void* data, size_t bytes);
  void finish();  // synced and closed

 private:
  std::string path_, shown_;
  int fd_ = -1;
};

void sync_folder(const std::string& path);
void make_folder(const std::string& path, bool may_exist = true);
void rename_path(const std::string& from, const std::string& to);
// Two paths change places at once. False, with nothing done: the file system cannot do that.
bool exchange_paths(const std::string& a, const std::string& b);

// Written beside `path`, then synced, renamed over it, and the folder synced. After an exception what was there before
// is untouched.
void write_file(const std::string& path, const std::function<void(const Sink&)>& body);
void write_file(const std::string& path, std::string_view text);

}  // namespace mortise
