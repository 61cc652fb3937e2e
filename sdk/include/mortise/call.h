/* Calls. Every point of kind call or operator is called with one struct, `mortise_call`, that holds all that the call
 * needs. So a call can be kept: copied with its frame, and run again later, on any thread. Checkpointing of activations
 * and prefetching are made of that. */
#ifndef MORTISE_CALL_H
#define MORTISE_CALL_H
#include "abi.h"
MORTISE_BEGIN

/** Flags of a call. */
enum {
  MORTISE_GRAD = 1,       /* autograd records */
  MORTISE_REPLAY = 2,     /* this pass repeats an earlier one: uses, terms and metrics were counted then */
  MORTISE_FIRST_PASS = 4, /* without a graph now, but a replay with one will follow: uses are counted */
  MORTISE_LAST_MICRO = 8  /* the last micro-batch of this step */
};
/** Bits of `want`: outputs that a fused provider may leave out unless somebody asks. */
enum { MORTISE_WANT_LOGITS = 1 };

/** One call of one point. Its pointers are good for the time of the call; `keep` copies what they point to. A wrapper
 * hands on the call that it got, with members changed if need be, never a copy: a newer host's is longer. */
struct mortise_call {
  uint32_t struct_size, point;
  mortise_str path; /* of the layer or segment, "h.3.attn"; "" for the whole model. Lives as long as the run */
  uint32_t mode, flags;
  int32_t micro, replica;     /* which micro-batch of the step; which device of this process */
  uint32_t compute_dtype;     /* what products and attention compute in; MORTISE_NO_DTYPE: as the weights are stored. A
                             wrapper may set it */
  uint32_t want;              /* a wrapper may add bits */
  const mortise_layer *layer; /* operators: the layer; NULL elsewhere */
  void *layer_data;           /* operators: what `declare` bound to the layer */
  mortise_batch *batch;       /* the micro-batch (data.h says its shapes), inside `micro`; NULL elsewhere */
  const mortise_value *args;  /* of `step` and `gradients`: the micro-batches of the step, as BATCH, on the device. A
                             wrapper may hand on others of as many samples, in memory of its own */
  uint32_t n_args, n_results;
  mortise_value *results; /* the caller's array, all MORTISE_NONE at first; the provider puts owned values into it */
};

/** "mortise.call/0" */
typedef struct mortise_call_api {
  uint32_t struct_size;
  /** Runs the rest of the chain; may be called again. */
  MORTISE_FN(next, mortise_next *, mortise_call *);
  /** Calls a layer with its wrappers, within the call under way. `results` must be MORTISE_NONE on entry. */
  MORTISE_FN(layer, mortise_layer *, const mortise_value *args, uint32_t n_args, mortise_value *results,
             uint32_t n_results);
  /** Copies the call and its frame: mode, path, micro, replica, compute dtype, random site, batch. Arguments are not
   * retained; they are given to `run`. `keep` names operators (their points) whose results the first pass stores and a
   * replay uses again. */
  MORTISE_FN(keep, const mortise_call *, mortise_next *, const mortise_str *keep, uint32_t n, mortise_kept **out);
  /** Runs it with the frame restored and these flags, and MORTISE_LAST_MICRO as the call had it; sets grad mode on this
   * thread by MORTISE_GRAD and sets it back afterwards. */
  MORTISE_FN(run, mortise_kept *, uint32_t flags, const mortise_value *args, uint32_t n_args, mortise_value *results,
             uint32_t n_results);
  MORTISE_FN_VOID(drop, mortise_kept *);
  /** The name of the call's point, "block", "linear", …; lives as long as the run. Since 0.2 */
  MORTISE_FN(name, const mortise_call *, mortise_str *);
  /** The id of the plugin that provides what the rest of the chain ends with; "" for the core. Lives as long as the
   * run. Since 0.2 */
  MORTISE_FN(provider, const mortise_next *, mortise_str *id);
  /** What a layer was asked for with: one of its attributes as the model gave it, borrowed for the run. For wrappers of
   * an operator, as call->layer. MORTISE_E_NOT_FOUND: it was left out, so operator.h's default holds. Since 0.2 */
  MORTISE_FN(attribute, const mortise_layer *, mortise_str key, mortise_value *out);
} mortise_call_api;

MORTISE_END
#endif
