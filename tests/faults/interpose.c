/* The calls that change a file system, in place of the C library's: also those that the C++ library makes for
 * std::filesystem, since symbols of the program come before symbols of its libraries. All of them lead to a few
 * functions of recorder.cpp. In C, where nothing says noexcept. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

int recorded_openat(int at, const char *path, int flags, mode_t mode);
int recorded_close(int fd);
ssize_t recorded_writev(int fd, const struct iovec *parts, int n, off_t offset); /* offset -1: where the file stands */
int recorded_fsync(int fd);
int recorded_ftruncate(int fd, off_t size);
int recorded_rename(int at, const char *from, int at2, const char *to, unsigned flags);
int recorded_mkdir(int at, const char *path, mode_t mode);
int recorded_unlink(int at, const char *path, int flags);
int recorded_symlink(const char *target, int at, const char *path);

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPEN(name)                                       \
  SEEN int name(const char *path, int flags, ...) {      \
    va_list rest;                                        \
    va_start(rest, flags);                               \
    const mode_t mode = mode_of(flags, rest);            \
    va_end(rest);                                        \
    return recorded_openat(AT_FDCWD, path, flags, mode); \
  }
#define OPENAT(name)                                        \
  SEEN int name(int at, const char *path, int flags, ...) { \
    va_list rest;                                           \
    va_start(rest, flags);                                  \
    const mode_t mode = mode_of(flags, rest);               \
    va_end(rest);                                           \
    return recorded_openat(at, path, flags, mode);          \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
SEEN int creat(const char *path, mode_t mode) {
  return recorded_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
SEEN int close(int fd) { return recorded_close(fd); }

SEEN ssize_t write(int fd, const void *data, size_t n) {
  return recorded_writev(fd, &(struct iovec){(void *)data, n}, 1, -1);
}
SEEN ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
  return recorded_writev(fd, &(struct iovec){(void *)data, n}, 1, at);
}
SEEN ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) { return pwrite(fd, data, n, at); }
SEEN ssize_t writev(int fd, const struct iovec *parts, int n) { return recorded_writev(fd, parts, n, -1); }
SEEN int fsync(int fd) { return recorded_fsync(fd); }
SEEN int fdatasync(int fd) { return recorded_fsync(fd); }
SEEN int ftruncate(int fd, off_t size) { return recorded_ftruncate(fd, size); }

SEEN int rename(const char *from, const char *to) { return recorded_rename(AT_FDCWD, from, AT_FDCWD, to, 0); }
SEEN int renameat(int at, const char *from, int at2, const char *to) { return recorded_rename(at, from, at2, to, 0); }
SEEN int renameat2(int at, const char *from, int at2, const char *to, unsigned flags) {
  return recorded_rename(at, from, at2, to, flags);
}
SEEN int mkdir(const char *path, mode_t mode) { return recorded_mkdir(AT_FDCWD, path, mode); }
SEEN int mkdirat(int at, const char *path, mode_t mode) { return recorded_mkdir(at, path, mode); }
SEEN int unlink(const char *path) { return recorded_unlink(AT_FDCWD, path, 0); }
SEEN int unlinkat(int at, const char *path, int flags) { return recorded_unlink(at, path, flags); }
SEEN int rmdir(const char *path) { return recorded_unlink(AT_FDCWD, path, AT_REMOVEDIR); }
SEEN int remove(const char *path) {
  struct stat info;
  if (fstatat(AT_FDCWD, path, &info, AT_SYMLINK_NOFOLLOW) != 0) return -1;
  return recorded_unlink(AT_FDCWD, path, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0);
}
SEEN int symlink(const char *target, const char *path) { return recorded_symlink(target, AT_FDCWD, path); }
SEEN int symlinkat(const char *target, int at, const char *path) { return recorded_symlink(target, at, path); }
