#include "core/store/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/diagnostic.hpp"

namespace mortise {
namespace {

// A call that a signal cut short is made again.
template <class Call>
int uninterrupted(const Call& call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// `error` is errno of what went wrong.
[[noreturn]] void refuse(const std::string& path, const char* what, int error) {
  Diagnostic d = trouble(kExitIo, "not_written", path + " cannot be " + what + ": " + std::strerror(error));
  d.error = error;
  d.effect = "what was there before, if anything, is untouched";
  throw Failure(d);
}

}  // namespace

OpenFile::OpenFile(const std::string& path, std::string shown) : path_(path), shown_(std::move(shown)) {
  fd_ = uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); });
  if (fd_ < 0) refuse(shown_, "opened for writing", errno);
}

OpenFile::~OpenFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

void OpenFile::write(const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, at, std::min<size_t>(bytes, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(shown_, "written", n < 0 ? errno : ENOSPC);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void OpenFile::finish() {
  if (uninterrupted([&] { return ::fsync(fd_); }) != 0) refuse(shown_, "synced", errno);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0 && errno != EINTR) {  // a network file system may say only now that there was no room
    const int error = errno;
    ::unlink(path_.c_str());
    refuse(shown_, "closed", error);
  }
}

void sync_folder(const std::string& path) {
  const int fd =
      uninterrupted([&] { return ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) refuse(path, "opened", errno);
  const int error = uninterrupted([&] { return ::fsync(fd); }) == 0 || errno == EINVAL
                        ? 0
                        : errno;  // EINVAL: a file system without a notion of it
  ::close(fd);
  if (error) refuse(path, "synced", error);
}

void rename_path(const std::string& from, const std::string& to) {
  if (uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); }) != 0) refuse(to, "renamed into place", errno);
}

void make_folder(const std::string& path, bool may_exist) {
  if (uninterrupted([&] { return ::mkdir(path.c_str(), 0755); }) != 0 && !(may_exist && errno == EEXIST))
    refuse(path, "made", errno);
}

bool exchange_paths(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  refuse(b, "renamed into place", errno);
}

void write_file(const std::string& path, const std::function<void(const Sink&)>& body) {
  const std::string beside = path + ".tmp-" + std::to_string(::getpid());
  OpenFile file(beside, path);
  body([&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.finish();
  try {
    rename_path(beside, path);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_folder(std::filesystem::path(path).parent_path().string());
}

void write_file(const std::string& path, std::string_view text) {
  write_file(path, [&](const Sink& sink) { sink(text.data(), text.size()); });
}

}  // namespace mortise
