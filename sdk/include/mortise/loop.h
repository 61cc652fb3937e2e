/* The step: its clock, its ledger of device scalars, and what filters may do to it. */
#ifndef MORTISE_LOOP_H
#define MORTISE_LOOP_H
#include "abi.h"
MORTISE_BEGIN

/** The host's clock. `applied` may be some steps old on a device that runs ahead. Whoever asks sets struct_size first;
 * nothing behind it is written. */
typedef struct mortise_clock {
  uint32_t struct_size;
  int32_t micros, ranks, micro_batch_size;
  int64_t sequence_length; /* data.sequence_length, 0 if the data has none */
  int64_t attempted, applied, samples, tokens, epoch;
  int64_t length; /* applied steps until the run is done */
} mortise_clock;

/** Device scalars and vectors, owned by the core, valid for the run. Gradients in memory = scale × true. */
typedef struct mortise_ledger {
  uint32_t struct_size, n_groups;
  mortise_tensor *scale; /* float64, 0-dim */
  mortise_tensor
      *multiplier;         /* float64, 0-dim: the gradient to use = in memory × this; has 1/scale and clipping in it */
  mortise_tensor *verdict; /* float64, 0-dim: 1 apply, 0 skip */
  mortise_tensor *applied; /* int64, 0-dim: steps applied before this one */
  mortise_tensor *lr;      /* float64 [n_groups], of this step */
  mortise_tensor *weight_decay; /* float64 [n_groups] */
  /** int64, 0-dim: steps begun before this one, skipped ones too: the `step` of random bits (philox.h), for a kernel
   * that a recorded step runs again. Since 0.2 */
  mortise_tensor *attempted;
} mortise_ledger;

/** What to ask of the loop at the next boundary. */
enum {
  MORTISE_STOP = 1, /* done: save and end, exit 0 */
  MORTISE_ABORT = 2 /* a guard gives up: end, exit 76 */
};

/** "mortise.loop/0" */
typedef struct mortise_loop_api {
  uint32_t struct_size;
  MORTISE_FN(clock, mortise_clock *);          /* [loop] */
  MORTISE_FN(ledger, const mortise_ledger **); /* [any-thread] once there is one */
  MORTISE_FN(set_window, int32_t micros);      /* [loop] only in step.window; the same on every rank */
  MORTISE_FN(vote, mortise_tensor *ok);        /* [loop] only in step.verdict: 0-dim, 0 and NaN mean skip, all else
                                                   apply; one vote to skip is enough */
  MORTISE_FN(
      multiply,
      mortise_tensor *factor); /* [loop] only in grad.transform: 0-dim, into the multiplier; the same on every rank */
  /** A term of the loss: `sum` (0-dim) over this micro-batch, divided by the step's count of `unit` ("tokens",
   * "samples", "one", or one of the data's own). Weight 0 makes it a metric, a column of the record. Inside `forward`
   * only; of a wrapper of `forward` the last of a name counts. Who trains a model must give at least one term of
   * another weight, which depends on a trainable parameter: a model does it in its last segment, loop.term("loss",
   * sum, "tokens", 1). What it returns trains nothing. */
  MORTISE_FN(term, mortise_str name, mortise_tensor *sum, mortise_str unit, double weight);
  MORTISE_FN(request, uint32_t what, mortise_str reason); /* agreed by all ranks at the next boundary.
                                                             [any-thread]: a watcher may be a thread of its own */
  /** Adds a column to the record that is being told: a FLOAT, an INT or a TEXT (copied), for the listeners that come
   * after this one: plugin.toml says listens = [{ point = "record", writes = ["columns"] }], and who says reads =
   * ["columns"] comes after; a column that comes too late for one of these fails. [loop] Only inside a
   * listener of `record`, `run.begin` or `run.end` while there is a record, whose array of columns may move by it. */
  MORTISE_FN(column, mortise_str name, mortise_value);
  /** The factor of the loss, from the next step on: 0-dim, above 0, copied on the device. Only in run.begin, where a
   * run that goes on has its factor already, and in step.commit. Since 0.2 */
  MORTISE_FN(set_scale, mortise_tensor *scale);
  /** A number of the step under way for its record: 0-dim, copied on the device when the step ends, a FLOAT column
   * `name` in `unit` ("" for none) when the record comes. Only between step.begin and step.end, once a name. [loop]
   * Since 0.2 */
  MORTISE_FN(report, mortise_str name, mortise_tensor *number, mortise_str unit);
  /** A number of the evaluation under way that is no sum over samples: the column "eval.NAME" of its record. Over all
   * ranks: whoever gives it has put theirs together. [loop] Only inside a call of `eval`, once a name. Since 0.2 */
  MORTISE_FN(metric, mortise_str name, double number);
  /** A term of the loss from inside a block, which activation.checkpointing may compute again in backward: it counts in
   * the first pass alone, and its gradient flows where a pass has a graph. It rides on `carrier`, a floating-point
   * tensor of the layer's result: `*out` (owned) has the same bytes, and backward through it gives `sum` the gradient
   * weight × scale / count of `unit`. So what the layer gives must come from `*out`; if nothing of the loss depends on
   * it, the term trains nothing. `sum` depends on a trainable parameter or on an argument that does, unless the weight
   * is 0: then it is a `term`. Inside `forward` only, in a composite or a segment; a pair has no graph. Since 0.2 */
  MORTISE_FN(attach_term, mortise_str name, mortise_tensor *carrier, mortise_tensor *sum, mortise_str unit,
             double weight, mortise_tensor **out);
  /** For who wraps `step` in band `capture` and records the device's work of a call of `next`: `*token`, above 0,
   * stands for what that call left on the host. [loop] Right after the call, in the wrapper. Since 0.2 */
  MORTISE_FN(recorded, uint64_t *token);
  /** The recording of that call was played in place of `next`: this step has its norm, terms, gradients and reported
   * numbers, whose tensors lie where they lay. Listeners inside `step` are not called, and what the host itself counts
   * there stays. [loop] In the wrapper. Since 0.2 */
  MORTISE_FN(replayed, uint64_t token);
} mortise_loop_api;

MORTISE_END
#endif
