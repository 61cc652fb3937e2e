// What readers and writers of files of others share. They stand for themselves: nothing here knows Mortise.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace mortise {

// Takes the next bytes of a file.
using Sink = std::function<void(const void* data, size_t bytes)>;

// What is wrong with a file that was read.
struct FormatError : std::exception {
  std::string code, path, message;  // the code is a slug
  FormatError(std::string c, std::string p, std::string m)
      : code(std::move(c)), path(std::move(p)), message(std::move(m)) {}
  const char* what() const noexcept override { return message.c_str(); }
};

// Names in files come from anywhere: control characters shown as \x1b.
inline std::string shown(std::string_view name) {
  std::string out = "`";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
      continue;
    }
    out += "\\x";
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out + "`";
}

// A file mapped for reading. Throws FormatError.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // a FIFO is refused, not waited for
    try {
      map(fd, path);
    } catch (...) {
      if (fd >= 0) ::close(fd);
      throw;
    }
    ::close(fd);
  }
  // One that is open already; the descriptor remains the caller's. `path` is for errors.
  MappedFile(int fd, const std::string& path) { map(fd, path); }
  ~MappedFile() {
    if (map_) ::munmap(map_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(map_), size_}; }

 private:
  void map(int fd, const std::string& path) {
    struct stat info{};
    int error = fd < 0 || ::fstat(fd, &info) != 0 ? errno : 0;
    if (error == 0 && !S_ISREG(info.st_mode)) error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    if (error == 0 && info.st_size > 0) {
      void* at = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (at == MAP_FAILED) error = errno;
      else map_ = at, size_ = static_cast<size_t>(info.st_size);
    }
    if (error) throw FormatError("not_read", path, std::string("cannot be opened: ") + std::strerror(error));
  }

  void* map_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mortise
