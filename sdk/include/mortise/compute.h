/* For kernels on the host's processor: threads to share, and random bits by site. */
#ifndef MORTISE_COMPUTE_H
#define MORTISE_COMPUTE_H
#include "call.h"
#include "philox.h"
MORTISE_BEGIN

/** "mortise.parallel/0" */
typedef struct mortise_parallel_api {
  uint32_t struct_size;
  /** Splits [0, n) into pieces of at least `grain` and runs `body` on the host's threads; returns when all are done.
   * Which piece runs on which thread must not change a result. */
  MORTISE_FN(run, int64_t n, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end) MORTISE_NOEXCEPT,
             void *user);
  /** How many threads computation on the host's processor uses: those of `run` and of LibTorch's operators. */
  MORTISE_FN(threads, int32_t *);
  /** Sets that number, 1 or more, for the whole run. [build] For whoever provides `device`, in its `open`. */
  MORTISE_FN(set_threads, int32_t);
} mortise_parallel_api;

/** "mortise.random/0" */
typedef struct mortise_random_api {
  uint32_t struct_size;
  /** Where in the random stream an operator's call stands; only inside one. key = (run.seed, stream), counter =
   * (element/8, site, step, micro). A site: the layer's place in the plan, which call of it this is within its segment,
   * and `draw`; so a recompute and a resumed run draw the same bits, with nothing saved. */
  MORTISE_FN(site, const mortise_call *, uint32_t draw, mortise_philox *);
  /** A place of the plugin's own, outside of layers: key = (run.seed, the plugin's id), site = `name`, step = the one
   * under way or the next; the same on every rank, but for parts of a parameter `name` that ranks cut. Since 0.2 */
  MORTISE_FN(stream, mortise_str name, mortise_philox *);
} mortise_random_api;

MORTISE_END
#endif
