/* A disk that fails when it is told to: loaded into a program with LD_PRELOAD, it stands before the calls that change
 * files below one folder. Defaults in parentheses.
 *
 *   FAULT_BELOW   a folder's name; calls count whose path has it as a part (checkpoints)
 *   FAULT_CALLS   which calls count, separated by commas (all of them):
 *                   open    for writing, or of a folder
 *                   write   also pwrite, writev
 *                   read    pread, of a file that is open for writing too
 *                   fsync   also fdatasync
 *                   rename  also of the exchanging kind
 *                   unlink  also rmdir
 *                   close, mkdir
 *   FAULT_WITH    what happens; without it nothing fails, and calls are only reported:
 *                   ENOSPC EIO EDQUOT ENFILE EMFILE EACCES EROFS EINVAL, or the number of another errno: it fails,
 *                           and nothing is done (close: closed all the same)
 *                   short   half is written (write only)
 *                   eintr   interrupted, and the next time not
 *                   kill    SIGKILL
 *   FAULT_AT      at which of the calls, from 1 (1)
 *   FAULT_TIMES   once, or ever: from there on (once)
 *   FAULT_SAVE    the calls are counted from the beginning of this save on, and those of other saves are let through
 *                   (`ever`: of earlier ones); 0: from the start of the program (0). A save begins with the mkdir of a
 *                   folder `.tmp-step-…`, or with that of FAULT_BELOW right before it, and goes on until the next.
 *   FAULT_EACH    1: every save from FAULT_SAVE on has its fault, the first one at call FAULT_AT, the next one at the
 *                   call after that, and so on, so that one run with enough saves has every call of a save fail. `ever`
 *                   is then until the save ends (0)
 *   FAULT_REPORT  a file that each call that counts is appended to: "SAVE NUMBER CALL PATH", and " fault" at the end
 *                   where one was made
 *
 * Calls that the C library makes for itself (fopen) are not seen, nor are links made. A program under AddressSanitizer
 * wants ASAN_OPTIONS=verify_asan_link_order=0 with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))
enum { kFiles = 4096, kShort = -1, kInterrupted = -2, kKill = -3 };

static struct {
  const char *below, *calls;
  int with, ever, each, report, started;
  long at, save;
} fault;
static char *paths[kFiles]; /* of the open files that count */
static long saves, number;  /* of the save; of the call in it */
static int entered;         /* a save has begun with the folder itself */
static int interrupted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static long number_of(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static int behaviour_of(const char *text) {
  static const struct {
    const char *name;
    int with;
  } all[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},     {"EDQUOT", EDQUOT}, {"ENFILE", ENFILE}, {"EMFILE", EMFILE},
             {"EACCES", EACCES}, {"EROFS", EROFS}, {"EINVAL", EINVAL}, {"short", kShort},  {"eintr", kInterrupted},
             {"kill", kKill}};
  if (!text || !*text) return 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (strcmp(text, all[i].name) == 0) return all[i].with;
  return atoi(text);
}

/* At the first call, which may come before any constructor. */
static void start(void) {
  if (fault.started) return;
  fault.started = 1;
  fault.below = getenv("FAULT_BELOW");
  if (!fault.below) fault.below = "checkpoints";
  fault.calls = getenv("FAULT_CALLS");
  fault.with = behaviour_of(getenv("FAULT_WITH"));
  fault.at = number_of("FAULT_AT", 1);
  fault.save = number_of("FAULT_SAVE", 0);
  fault.each = number_of("FAULT_EACH", 0) != 0;
  const char *times = getenv("FAULT_TIMES"), *report = getenv("FAULT_REPORT");
  fault.ever = times && strcmp(times, "ever") == 0;
  fault.report =
      report ? (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
}

static int has_part(const char *path, const char *part) {
  const size_t n = strlen(part);
  for (const char *at = path; (at = strstr(at, part)); ++at)
    if ((at == path || at[-1] == '/') && (at[n] == '/' || at[n] == '\0')) return 1;
  return 0;
}

static int is_counted(const char *call) {
  if (!fault.calls || !*fault.calls) return 1;
  const size_t n = strlen(call);
  for (const char *at = fault.calls; (at = strstr(at, call)); ++at)
    if ((at == fault.calls || at[-1] == ',') && (at[n] == ',' || at[n] == '\0')) return 1;
  return 0;
}

/* The whole path of a call, in `buffer`, if it counts. */
static const char *counted(int at, const char *path, char buffer[PATH_MAX]) {
  start();
  size_t n = 0;
  if (*path != '/') {
    char link[64];
    if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    const long length = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 2);
    n = length > 0 ? (size_t)length : 0;
    buffer[n++] = '/';
  }
  snprintf(buffer + n, PATH_MAX - n, "%s", path);
  return has_part(buffer, fault.below) ? buffer : NULL;
}

/* What happens to a call that counts: 0 nothing, else an errno or a behaviour. */
static int verdict(const char *call, const char *path) {
  if (!path || !is_counted(call)) return 0;
  pthread_mutex_lock(&lock);
  const char *name = strrchr(path, '/');
  const int is_mkdir = strcmp(call, "mkdir") == 0, is_save = is_mkdir && name && strncmp(name, "/.tmp-step-", 11) == 0;
  const int is_folder = is_mkdir && name && strcmp(name + 1, fault.below) == 0;
  if ((is_save || is_folder) && !entered) {
    ++saves;
    if (fault.save > 0 || fault.each) number = 0;
  }
  ++number;
  const long first = fault.save > 0 ? fault.save : 1, at = fault.at + (fault.each ? saves - first : 0);
  int due; /* the save and the call are those */
  if (fault.each) due = saves >= first && (number == at || (fault.ever && number > at));
  else if (fault.save > 0)
    due = (saves == fault.save && (number == at || (fault.ever && number > at))) || (fault.ever && saves > fault.save);
  else due = number == at || (fault.ever && number > at);
  int with = due ? fault.with : 0;
  if (with == kShort && strcmp(call, "write") != 0) with = 0;
  if (with == kInterrupted && fault.ever && (interrupted = !interrupted) == 0) with = 0;
  if (is_save || is_folder)
    entered = with == kInterrupted || (is_folder && !with); /* a call that is made again begins no other save */
  if (fault.report >= 0) {
    char line[PATH_MAX + 128];
    const int n = snprintf(line, sizeof line, "%ld %ld %s %s%s\n", saves, number, call, path, with ? " fault" : "");
    syscall(SYS_write, fault.report, line, n);
  }
  pthread_mutex_unlock(&lock);
  if (with == kKill) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  return with == kInterrupted ? EINTR : with;
}

static int fails(int with) {
  if (with <= 0) return 0;
  errno = with;
  return 1;
}

static const char *path_of(int fd) { return fd >= 0 && fd < kFiles ? paths[fd] : NULL; }

static int open_at(int at, const char *path, int flags, mode_t mode) {
  char buffer[PATH_MAX];
  const int changes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_DIRECTORY));
  const char *whole = changes ? counted(at, path, buffer) : NULL;
  if (fails(verdict("open", whole))) return -1;
  const int fd = (int)syscall(SYS_openat, at, path, flags, mode);
  if (fd >= 0 && fd < kFiles) {
    free(paths[fd]); /* closed within the C library */
    paths[fd] = whole ? strdup(whole) : NULL;
  }
  return fd;
}

#define OPEN(name, at_type, at)                                                     \
  SEEN int name(at_type const char *path, int flags, ...) {                         \
    va_list rest;                                                                   \
    va_start(rest, flags);                                                          \
    const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                                   \
    return open_at(at, path, flags, mode);                                          \
  }
#define FOLDER int folder,
OPEN(open, , AT_FDCWD)
OPEN(open64, , AT_FDCWD)
OPEN(openat, FOLDER, folder)
OPEN(openat64, FOLDER, folder)
SEEN int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

SEEN int close(int fd) {
  const int with = verdict("close", path_of(fd));
  if (fd >= 0 && fd < kFiles) {
    free(paths[fd]);
    paths[fd] = NULL;
  }
  const int result = (int)syscall(SYS_close, fd);
  return fails(with) ? -1 : result;
}

static size_t part_of(size_t n, int with) { return with == kShort && n > 1 ? n / 2 : n; }

SEEN ssize_t write(int fd, const void *data, size_t n) {
  const int with = verdict("write", path_of(fd));
  return fails(with) ? -1 : syscall(SYS_write, fd, data, part_of(n, with));
}
SEEN ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
  const int with = verdict("write", path_of(fd));
  return fails(with) ? -1 : syscall(SYS_pwrite64, fd, data, part_of(n, with), at);
}
SEEN ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) { return pwrite(fd, data, n, at); }
SEEN ssize_t pread(int fd, void *data, size_t n, off_t at) {
  return fails(verdict("read", path_of(fd))) ? -1 : syscall(SYS_pread64, fd, data, n, at);
}
SEEN ssize_t pread64(int fd, void *data, size_t n, off_t at) { return pread(fd, data, n, at); }
SEEN ssize_t writev(int fd, const struct iovec *parts, int n) {
  const int with = verdict("write", path_of(fd));
  if (fails(with)) return -1;
  return with == kShort ? syscall(SYS_write, fd, parts[0].iov_base, part_of(parts[0].iov_len, with))
                        : syscall(SYS_writev, fd, parts, n);
}
SEEN int fsync(int fd) { return fails(verdict("fsync", path_of(fd))) ? -1 : (int)syscall(SYS_fsync, fd); }
SEEN int fdatasync(int fd) { return fails(verdict("fsync", path_of(fd))) ? -1 : (int)syscall(SYS_fdatasync, fd); }

SEEN int mkdirat(int at, const char *path, mode_t mode) {
  char buffer[PATH_MAX];
  return fails(verdict("mkdir", counted(at, path, buffer))) ? -1 : (int)syscall(SYS_mkdirat, at, path, mode);
}
SEEN int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

SEEN int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
  char buffer[PATH_MAX];
  return fails(verdict("rename", counted(to_at, to, buffer))) ? -1
                                                              : (int)syscall(SYS_renameat2, at, from, to_at, to, flags);
}
SEEN int renameat(int at, const char *from, int to_at, const char *to) { return renameat2(at, from, to_at, to, 0); }
SEEN int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

SEEN int unlinkat(int at, const char *path, int flags) {
  char buffer[PATH_MAX];
  return fails(verdict("unlink", counted(at, path, buffer))) ? -1 : (int)syscall(SYS_unlinkat, at, path, flags);
}
SEEN int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
SEEN int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
SEEN int remove(const char *path) {
  struct stat info;
  if (fstatat(AT_FDCWD, path, &info, AT_SYMLINK_NOFOLLOW) != 0) return -1;
  return unlinkat(AT_FDCWD, path, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0);
}
