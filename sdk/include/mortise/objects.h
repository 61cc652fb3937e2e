/* The small objects: schedule, device, sample. Those of several ranks: ranks.h. */
#ifndef MORTISE_OBJECTS_H
#define MORTISE_OBJECTS_H
#include "call.h"
#include "tensor.h"
MORTISE_BEGIN

/** The object of `schedule`: the multiplier of the peak learning rate. Warm-up ([schedule] warmup, linear), horizon
 * ([schedule] over) and groups are the core's: `factor` is asked for the steps after warm-up only.
 *   progress     (steps applied - steps of warm-up) / (steps of the horizon - steps of warm-up): 0 at the first step
 *                after warm-up, below 1 at the last step of the horizon, 1 at every step after it
 *   *multiplier  0 to 1; anything else, NaN too, ends the run with exit 71
 * Pure: the core asks for many steps ahead, and more than once, so it depends on `progress` and the configuration alone
 * and calls nothing of the loop. [loop] */
typedef struct mortise_schedule {
  uint32_t struct_size, reserved;
  MORTISE_PLUG(factor, double progress, double *multiplier);
} mortise_schedule;

/** The object of `device`. `open` is called before the host touches LibTorch for anything else. */
typedef struct mortise_device {
  uint32_t struct_size;
  uint32_t kind; /* MORTISE_CPU, MORTISE_CUDA */
  MORTISE_PLUG(open, int32_t index);
  MORTISE_PLUG(describe, mortise_str *); /* "2 threads, AMD EPYC"; lives as long as the plugin */
  MORTISE_PLUG(memory, int64_t *used, int64_t *peak, int64_t *total); /* bytes */
  /** The most that dense matrix products reach whose factors are "fp64", "fp32", "tf32", "bf16" or "fp16", as the
   * maker of the open device says, in FLOP/s; 0: not known. NULL: it never is. Since 0.2 */
  MORTISE_PLUG(products, mortise_str factors, double *flop_per_s);
} mortise_device;

/** What `sample` is asked for. `emit` gets pieces of text as they come; it returns 0 to go on. */
typedef struct mortise_sample_request {
  uint32_t struct_size;
  int32_t tokens;     /* how many new tokens; 0: the plugin's own default */
  mortise_str prompt; /* empty: the plugin's own */
  double temperature; /* negative: the plugin's own; 0: always the likeliest */
  int32_t top_k;      /* negative: the plugin's own; 0: all */
  uint32_t reserved;
  uint64_t seed;
  void *user;
  mortise_status (*emit)(void *user, mortise_str piece) MORTISE_NOEXCEPT;
  double top_p;            /* 0 or negative: the plugin's own; 1: all. Since 0.2 */
  const mortise_str *stop; /* texts; what is new ends before the first of them. NULL: the plugin's own. Since 0.2 */
  uint32_t n_stop;
  uint32_t text; /* which of several texts this is, from 0: so that equal prompts draw other bits. Since 0.2 */
} mortise_sample_request;

/** The object of `sample`. */
typedef struct mortise_sampler {
  uint32_t struct_size, reserved;
  MORTISE_PLUG(generate, const mortise_sample_request *); /* [loop] */
} mortise_sampler;

/** "mortise.model/0": the run's model, for `sample` and the like. */
typedef struct mortise_model_api {
  uint32_t struct_size;
  /** Runs the model on a batch in a mode, without a graph. Results of the last segment: for a language model results[0]
   * is the sum of the loss (NONE without labels) and results[1] the logits [B, T, vocab] (NONE unless wanted). [loop]
   */
  MORTISE_FN(forward, mortise_batch *, uint32_t mode, uint32_t want, mortise_value *results, uint32_t n_results);
} mortise_model_api;

MORTISE_END
#endif
