/* A clock that is slow: loaded with LD_PRELOAD into the ranks of a run, it is that of one, by its variable RANK.
 *
 *   CLOCK_RANK   the rank
 *   CLOCK_SHARE  of each second that passes, so much passes for it (0.5)
 *
 * Only the monotonic clock, by which the program measures. What waits until a time of it waits less long: the kernel
 * has the true one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double share = 1;
static struct timespec began;

static void begin(void) {
  const char *rank = getenv("RANK"), *slow = getenv("CLOCK_RANK"), *text = getenv("CLOCK_SHARE");
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &began);
  if (rank && slow && strcmp(rank, slow) == 0) share = text ? strtod(text, NULL) : 0.5;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *t) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const int status = (int)syscall(SYS_clock_gettime, id, t);
  if (status != 0 || id != CLOCK_MONOTONIC) return status;
  pthread_once(&once, begin);
  if (share == 1) return 0;
  const double since = (double)(t->tv_sec - began.tv_sec) * 1e9 + (double)(t->tv_nsec - began.tv_nsec);
  const long long ns = (long long)(since * share) + began.tv_nsec;
  t->tv_sec = began.tv_sec + (time_t)(ns / 1000000000);
  t->tv_nsec = (long)(ns % 1000000000);
  return 0;
}
