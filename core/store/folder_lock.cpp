#include "core/store/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace mortise {

FolderLock::FolderLock(const std::string& folder, Kind kind) : path_(folder) {
  fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) return;
  held_ = ::flock(fd_, (kind == Kind::kAlone ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0;
  refused_ = !held_ && errno == EWOULDBLOCK;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool FolderLock::is_here() const {
  struct stat locked{}, named{};
  if (fd_ < 0 || ::fstat(fd_, &locked) != 0) return true;
  if (::stat(path_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

std::string FolderLock::path_now() const {
  struct stat locked{};
  if (::fstat(fd_, &locked) == 0 && locked.st_nlink == 0) return "";
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd_), error).string();
}

}  // namespace mortise
