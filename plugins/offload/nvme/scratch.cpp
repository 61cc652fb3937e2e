#include "scratch.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include "mortise/cpp/core.hpp"

namespace mortise {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(MORTISE_E_IO, what, "[offload.nvme] path = a folder on a disk with that much room");
}

[[noreturn]] void refuse(const std::string& folder, int64_t bytes, int error) {
  const int64_t free = room_in(folder).free;
  refuse("optimizer states take " + size_text(bytes) + " in " + folder + ", " +
         (free < 0 ? "" : "which has " + size_text(free) + " free: ") + std::strerror(error));
}

// Where no file can be made without a name, one that has lost it.
int unnamed_in(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string name = folder + "/.offload-nvme-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

// A file system may take the flag and want larger blocks than ours.
bool goes_direct(int fd) {
  if (::fcntl(fd, F_SETFL, O_DIRECT) != 0) return false;
  const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(MORTISE_STORE_BLOCK, MORTISE_STORE_BLOCK),
                                                          std::free);
  if (::pread(fd, block.get(), MORTISE_STORE_BLOCK, 0) == MORTISE_STORE_BLOCK) return true;
  ::fcntl(fd, F_SETFL, 0);
  return false;
}

// Calls until all is done; what is cut short goes on with whole blocks, as direct I/O wants it.
template <class Call>
void transfer(const mortise_extent& extent, std::byte* memory, Call call) {
  for (int64_t done = 0; done < extent.bytes;) {
    const ssize_t n = call(memory + done, static_cast<size_t>(extent.bytes - done), extent.offset + done);
    if (n < 0 && errno == EINTR) continue;
    const int64_t blocks = n / MORTISE_STORE_BLOCK * MORTISE_STORE_BLOCK;
    if (blocks <= 0) throw std::system_error(n < 0 ? errno : EIO, std::generic_category());
    done += blocks;
  }
}

}  // namespace

Room room_in(const std::string& folder) {
  struct statfs system{};
  if (::statfs(folder.c_str(), &system) != 0) return {};
  return {true, system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC,
          system.f_blocks == 0 ? -1 : static_cast<int64_t>(system.f_bavail) * system.f_bsize};
}

std::string size_text(int64_t bytes) {
  char text[32];
  const double mib = static_cast<double>(bytes) / (1 << 20);
  std::snprintf(text, sizeof text, mib < 1024 ? "%.1f MiB" : "%.1f GiB", mib < 1024 ? mib : mib / 1024);
  return text;
}

Scratch::Scratch(const std::string& folder, int64_t bytes) : bytes_(bytes) {
  if (const int64_t free = room_in(folder).free; free >= 0 && free < bytes) refuse(folder, bytes, ENOSPC);
  fd_ = unnamed_in(folder);
  if (fd_ < 0) refuse("no file can be made in " + folder + ": " + std::strerror(errno));
  int error = ::fallocate(fd_, 0, 0, bytes) == 0 ? 0 : errno;
  if (error == EOPNOTSUPP && ::ftruncate(fd_, bytes) == 0) {
    log_line(MORTISE_LOG_WARNING, folder + ": no room can be reserved here; it may be full in the middle of the run");
    error = 0;
  }
  if (error == 0) {
    is_direct_ = goes_direct(fd_);
    mapped_ = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped_ == MAP_FAILED) error = errno;
  }
  if (error == 0) return;
  ::close(fd_);
  refuse(folder, bytes, error);
}

Scratch::~Scratch() {
  ::munmap(mapped_, static_cast<size_t>(bytes_));
  ::close(fd_);
}

void Scratch::read(const mortise_extent& extent, std::byte* memory) const {
  transfer(extent, memory, [&](void* to, size_t n, int64_t at) { return ::pread(fd_, to, n, at); });
}

void Scratch::write(const mortise_extent& extent, std::byte* memory) const {
  transfer(extent, memory, [&](const void* from, size_t n, int64_t at) { return ::pwrite(fd_, from, n, at); });
}

}  // namespace mortise
