#include "core/plugin/image.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/plugin/refuse.hpp"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace mortise {
namespace {

constexpr size_t kMostBytes = size_t{1} << 32;
constexpr int kFirstDescriptor = 10;  // away from 0, 1 and 2, which a plugin or a parent may have closed

int moved_up(int descriptor) {
  if (descriptor < 0) return descriptor;
  const int up = fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstDescriptor);
  const int error = errno == EINVAL ? EMFILE : errno;  // as if nothing above had a number
  close(descriptor);
  errno = error;
  return up;
}

int make_memory_file(const std::string& name) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int made = memfd_create(name.c_str(), flags | MFD_EXEC);
  if (made >= 0 || errno != EINVAL) return moved_up(made);
  return moved_up(memfd_create(name.c_str(), flags));  // before Linux 6.3
}

int open_library(const PluginInfo& info, size_t& size) {
  const std::string& id = info.schema.id;
  const int file = moved_up(open(info.library.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR))
    refuse(info, "plugin_missing", id + " has a plugin.toml, but no library",
           {"copy the library there, or build it: " + kBuildIt});
  if (file < 0)
    refuse(info, "plugin_missing", id + " cannot be read: " + strerror(errno),
           {errno == EMFILE || errno == ENFILE ? "more open files: ulimit -n 1024" : "chmod a+r " + info.library});
  struct stat status{};
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && static_cast<size_t>(status.st_size) <= kMostBytes) {
    size = static_cast<size_t>(status.st_size);
    return file;
  }
  close(file);
  refuse(info, "not_elf", id + " is no whole shared library: it is no regular file of at most 4 GiB",
         {"copy it again from where it came, or build it again: " + kBuildIt});
}

// As many bytes as there are, at most `size`; 0 or more.
size_t read_into(int file, char* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read(file, to + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

char* map(size_t size, int protection, int flags, int file) {
  void* const at = mmap(nullptr, size, protection, flags, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

}  // namespace

LibraryImage::LibraryImage(const PluginInfo& info) {
  file_ = open_library(info, size_);
  memory_ = make_memory_file(info.schema.id + ".so");
  if (memory_ >= 0 && ftruncate(memory_, static_cast<off_t>(size_)) != 0) close(std::exchange(memory_, -1));
  if (memory_ < 0) not_from_memory_ = strerror(errno);
  if (size_ > 0) copy(info);
  if (memory_ >= 0) seal();
  if (memory_ >= 0) close(std::exchange(file_, -1));
}

[[noreturn]] static void no_memory(const PluginInfo& info) {
  refuse(info, "out_of_memory", "no memory for the library of " + info.schema.id + ": " + strerror(errno),
         {"free memory"});
}

void LibraryImage::copy(const PluginInfo& info) {
  const int flags = MAP_POPULATE | (memory_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  data_ = map(size_, PROT_READ | PROT_WRITE, flags, memory_);
  if (!data_) no_memory(info);
  const size_t whole = size_;
  size_ = read_into(file_, data_, whole);  // it was cut meanwhile: the check of what it says about itself will tell
  if (memory_ < 0) return;
  munmap(data_, whole);  // a shared mapping that may be written to could not be sealed
  data_ = map(whole, PROT_READ, MAP_PRIVATE, memory_);
  if (!data_) no_memory(info);
}

// From here on nobody can change it, this process included.
void LibraryImage::seal() {
  const bool sealed = fcntl(memory_, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
  char* const code = size_ == 0 ? data_ : map(1, PROT_READ | PROT_EXEC, MAP_PRIVATE, memory_);
  if (!sealed || (size_ > 0 && !code)) {
    not_from_memory_ = strerror(errno);
    close(std::exchange(memory_, -1));
  }
  if (code && code != data_) munmap(code, 1);
}

LibraryImage::LibraryImage(LibraryImage&& other) noexcept
    : file_(std::exchange(other.file_, -1)), memory_(std::exchange(other.memory_, -1)),
      data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      not_from_memory_(std::move(other.not_from_memory_)) {}

LibraryImage::~LibraryImage() {
  if (data_) munmap(data_, size_);
  if (memory_ >= 0) close(memory_);
  if (file_ >= 0) close(file_);
}

}  // namespace mortise
