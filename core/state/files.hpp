// Files that appear whole or not at all.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace mortise {

// Written beside `path`, then synced, renamed over it, and the folder synced. Without `commit` nothing is left. Throws Failure (exit 74).
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what);
  std::string path_, temporary_;
  int fd_ = -1;
};

void write_file(const std::string& path, std::string_view text);

}  // namespace mortise
