#include "core/store/files.hpp"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"

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
  const bool is_full = error == ENOSPC || error == EDQUOT;
  Diagnostic d =
      trouble(kExitIo, is_full ? "no_space" : "not_written", path + " cannot be " + what + ": " + std::strerror(error));
  d.effect = "what was there before, if anything, is untouched";
  if (is_full) d.fixes = {"make room there, or choose another place"};
  throw Failure(d);
}

[[noreturn]] void refuse_to_read(const std::string& path, const std::string& why) {
  throw Failure(trouble(kExitData, "not_read", why, path));
}

std::string reason_of(int error) {
  if (error == ELOOP) return "it is a link, which is not followed";
  if (error == ENOTDIR) return "it lies behind a link, or in what is no folder";
  if (error == ENXIO) return "it is not a regular file";
  return std::string("it cannot be read: ") + std::strerror(error);
}

// Opens `path` in `folder`, part by part and without a link among them. Negative: what errno says.
int open_within(const std::string& folder, const std::string& path) {
  int at =
      uninterrupted([&] { return ::open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); });
  const std::vector<std::string> parts = split(path, '/');
  for (size_t i = 0; at >= 0 && i < parts.size(); ++i) {
    const int kind = i + 1 < parts.size() ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK;
    const int next = uninterrupted([&] { return ::openat(at, parts[i].c_str(), kind | O_NOFOLLOW | O_CLOEXEC); });
    const int error = errno;
    ::close(at);
    errno = error;
    at = next;
  }
  return at;
}

// A name that nobody can guess and take before.
constexpr size_t kRandomDigits = 16;
std::string beside(const std::string& path) {
  std::random_device random;
  return fmt::format("{}{}{:08x}{:08x}", path, kTemporary, random(), random());
}
bool is_beside(const std::string& name) {
  const size_t mark = name.rfind(kTemporary), digits = mark + std::strlen(kTemporary);
  return mark != std::string::npos && mark > 0 && name.size() == digits + kRandomDigits &&
         name.find_first_not_of("0123456789abcdef", digits) == std::string::npos;
}

void replace_file(const std::string& path, const std::function<void(const Sink&)>& body, bool synced) {
  const std::string begun = beside(path);
  OpenFile file(begun, path);
  body([&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.finish(synced);
  try {
    rename_path(begun, path);
  } catch (...) {
    ::unlink(begun.c_str());
    throw;
  }
  if (synced) sync_folder(std::filesystem::path(path).parent_path().string());
}

std::function<void(const Sink&)> whole(std::string_view text) {
  return [text](const Sink& sink) { sink(text.data(), text.size()); };
}

}  // namespace

bool is_inside(const std::string& path) {
  const auto is_odd = [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; };
  const auto is_no_name = [](const std::string& part) { return part.empty() || part == "." || part == ".."; };
  return std::ranges::none_of(path, is_odd) && std::ranges::none_of(split(path, '/'), is_no_name);
}

RunFile::RunFile(const std::string& folder, const std::string& path) : path_(folder + "/" + path) {
  if (!is_inside(path)) refuse_to_read(path_, "it is not inside " + folder);
  fd_ = open_within(folder, path);
  if (fd_ < 0) refuse_to_read(path_, reason_of(errno));
  struct stat info{};
  const int error = ::fstat(fd_, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(info.st_mode)) {
    bytes_ = static_cast<uint64_t>(info.st_size);
    return;
  }
  ::close(fd_);
  refuse_to_read(path_, error ? reason_of(error) : "it is not a regular file");
}

RunFile::~RunFile() { ::close(fd_); }

size_t RunFile::read(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(fd_, at + done, std::min<size_t>(bytes - done, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse_to_read(path_, reason_of(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

void must_be_readable(const std::string& path, std::string_view text, size_t most) {
  if (text.size() <= most) return;
  const auto shown = [](size_t bytes) { return with_commas(static_cast<int64_t>(bytes)); };
  Diagnostic d = trouble(kExitData, "too_large",
                         path + " would have " + shown(text.size()) + " bytes; it is read up to " + shown(most));
  d.effect = "nothing was started: the run could not be resumed";
  throw Failure(d);
}

std::string read_run_file(const std::string& folder, const std::string& path, size_t most) {
  RunFile file(folder, path);
  std::string text(std::min<uint64_t>(file.bytes(), most) + 1, '\0');  // one more shows that it has grown
  text.resize(file.read(text.data(), text.size()));
  if (file.bytes() > most || text.size() > most)
    refuse_to_read(file.path(), "it is larger than " + byte_size(static_cast<int64_t>(most)));
  return text;
}

bool has_file(const std::string& folder, const std::string& path) {
  struct stat info{};
  return ::lstat((folder + "/" + path).c_str(), &info) == 0 || errno != ENOENT;
}

std::optional<std::string> read_run_file_if_any(const std::string& folder, const std::string& path, size_t most) {
  return has_file(folder, path) ? std::optional(read_run_file(folder, path, most)) : std::nullopt;
}

OpenFile::OpenFile(const std::string& path, std::string shown) : path_(path), shown_(std::move(shown)) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;  // what lies there, a link too, is somebody else's
  fd_ = uninterrupted([&] { return ::open(path.c_str(), flags, 0644); });
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

void OpenFile::finish(bool synced) {
  if (synced && uninterrupted([&] { return ::fsync(fd_); }) != 0) refuse(shown_, "synced", errno);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0 && errno != EINTR) {  // a network file system may say only now that there was no room
    const int error = errno;
    ::unlink(path_.c_str());
    refuse(shown_, "closed", error);
  }
}

void must_fit(const std::string& folder, int64_t bytes) {
  constexpr int64_t kSlack = int64_t{1} << 20;  // manifest, folders, blocks that are not full
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return;  // writing will tell
  const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize), needed = bytes + kSlack;
  if (free < needed)
    throw Failure(
        trouble(kExitIo, "no_space",
                fmt::format("no space left, it needs {}, {} free at {}", byte_size(needed), byte_size(free), folder)));
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

void point_link(const std::string& link, const std::string& target) {
  const std::filesystem::path path(link);
  const std::filesystem::path beside = path.parent_path() / (kTemporary + path.filename().string());
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  std::filesystem::create_directory_symlink(target, beside, ignored);
  std::filesystem::rename(beside, path, ignored);
  std::filesystem::remove(beside, ignored);
}

void rename_path(const std::string& from, const std::string& to) {
  if (uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); }) != 0) refuse(to, "renamed into place", errno);
}

void make_folder(const std::string& path, bool may_exist) {
  if (uninterrupted([&] { return ::mkdir(path.c_str(), 0755); }) != 0 && !(may_exist && errno == EEXIST))
    refuse(path, "made", errno);
}

bool make_folders(const std::string& path, std::error_code& error) {
  std::filesystem::path folder(path);
  if (!folder.has_filename()) folder = folder.parent_path();  // "runs/one/"
  const std::filesystem::path above = folder.parent_path();
  const auto make = [&] { return uninterrupted([&] { return ::mkdir(folder.c_str(), 0755); }) == 0 ? 0 : errno; };
  int failure = make();
  if (failure == ENOENT && !above.empty() && above != folder) {
    make_folders(above.string(), error);
    if (error) return false;
    failure = make();
  }
  error = failure == EEXIST ? std::error_code() : std::error_code(failure, std::generic_category());
  if (failure == 0) sync_folder(above.string());
  return failure == 0;
}

bool exchange_paths(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  refuse(b, "renamed into place", errno);
}

void write_file(const std::string& path, const std::function<void(const Sink&)>& body) {
  replace_file(path, body, /*synced=*/true);
}
void write_file(const std::string& path, std::string_view text) { replace_file(path, whole(text), /*synced=*/true); }
void show_file(const std::string& path, std::string_view text) { replace_file(path, whole(text), /*synced=*/false); }

void remove_begun_files(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> begun;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (is_beside(at->path().filename().string()) &&
        at->symlink_status(unknown).type() == std::filesystem::file_type::regular)
      begun.push_back(at->path());
  }
  for (const auto& path : begun) ::unlink(path.c_str());
}

}  // namespace mortise
