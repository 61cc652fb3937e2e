/* Operators and models. A provider of an operator point gives forward and backward, a pair, and the host builds the
 * autograd node; without backward it is a composite, which autograd differentiates.
 *
 * The operators of 0.1: attributes (at declaration), then arguments → results (at a call). N: any leading dimensions,
 * [B, T] as well as [B*T], the same in all arguments of a call.
 *
 *   embedding       attrs  name vocab width init
 *                   call   ids [N] i64 → y [N, width]
 *   norm            attrs  name width eps kind ("layer": weight and bias; "rms": weight)
 *                   call   x [N, width] → y [N, width] in the compute dtype; statistics in fp32
 *   residual_norm   attrs  those of norm, dropout
 *                   call   branch [N, width], residual [N, width] → y (compute dtype), sum (stream dtype)
 *                          sum = residual + dropout(branch); y = norm(sum)
 *   dropout         attrs  p
 *                   call   x → y
 *   linear          attrs  name in out bias layout activation init parts; layout "out_in" as torch, "in_out" as GPT-2's
 *                          Conv1D; activation "none" "gelu" "gelu_tanh" "relu"; parts: so many equal ones of `out` are
 *                          packed into the weight (3: queries, keys, values), which its declaration says. Since 0.2
 *                   call   x [N, in] → y [N, out]
 *   attention       attrs  heads head_dim causal dropout mask ("none"; "keys": a mask will come)
 *                   call   qkv [B, T, 3·heads·head_dim], mask or NONE → y [B, T, heads·head_dim]
 *   mlp             attrs  name up down width inner activation bias layout init_up init_down
 *                   call   x [N, width] → y [N, width]; a composite of linear
 *   head_loss       attrs  name vocab width tie init
 *                   call   x [N, width], labels [N] i64 (-100: ignored) or NONE
 *                          → sum of the cross-entropy (NONE without labels), logits (NONE unless wanted)
 *
 * Attributes by type; those with a default may be left out:
 *   INT      vocab width in out inner heads head_dim, parts (1)
 *   FLOAT    eps (1e-5), p and dropout (0), init init_up init_down (0.02: standard deviation of the weights)
 *   LOGICAL  bias (true), causal (false)
 *   TEXT     name (the path), up ("up"), down ("down"), layout ("out_in"), activation (linear: "none", mlp: "gelu"),
 *            kind ("layer"), mask ("none")
 *   PARAM    tie: the head's weight is that parameter
 *
 * `name` is the prefix of the parameters' names; up and down are the last parts of the paths of the two linears of mlp.
 * A plugin may add operators of its own: [operator.NAME] in plugin.toml. */
#ifndef MORTISE_OPERATOR_H
#define MORTISE_OPERATOR_H
#include "build.h"
#include "call.h"
MORTISE_BEGIN

/** A tensor that forward wants to see again in backward. */
enum {
  MORTISE_SAVE_INPUT = 0,  /* argument `index` */
  MORTISE_SAVE_OUTPUT = 1, /* result `index` */
  MORTISE_SAVE_OWN = 2,    /* `tensor`, whose ownership goes to the host */
  MORTISE_SAVE_CAST = 3    /* `tensor`, whose ownership goes to the host: argument `index` in another dtype; a replay
                              casts the new argument again */
};
typedef struct mortise_saved {
  uint32_t from, index;
  mortise_tensor *tensor;
} mortise_saved;
enum { MORTISE_MAX_SAVED = 16 };

/** What backward gets: the saved tensors in the order they were listed, one gradient a result (NULL: undefined). It
 * puts one owned gradient for each argument whose bit in `wanted` is set. Parameters' gradients go through
 * mortise.grads. */
typedef struct mortise_backward {
  uint32_t struct_size, n_saved, n_grad_out, n_grad_in;
  mortise_tensor *const *saved;
  mortise_tensor *const *grad_out;
  mortise_tensor **grad_in;
  uint64_t wanted;
} mortise_backward;

/** Where a layer will stand, for `supports`. */
typedef struct mortise_place {
  uint32_t struct_size, mode;
  mortise_str path;
  uint32_t compute_dtype, device;
  const mortise_attr *attrs;
  uint32_t n_attrs, reserved;
} mortise_place;

/** The object of an operator point. Forward and backward are re-entrant and keep nothing between calls.
 *  Results must be new tensors: an argument or a view of one is refused. */
typedef struct mortise_operator {
  uint32_t struct_size, flags;
  /** Declares parameters and sub-layers; `*data` comes back as call->layer_data and stays the plugin's. [build] */
  MORTISE_PLUG(declare, mortise_builder *, const mortise_layer_spec *, void **data);
  /** Can it run there? If not, `*why` says so in a few words and `*fix` what to write instead; both live as long as the
   * plugin. [build] */
  MORTISE_PLUG(supports, const mortise_place *, int *yes, mortise_str *why, mortise_str *fix);
  /** Runs with autograd off if there is a backward. `*n_saved` is 0 on entry. */
  MORTISE_PLUG(forward, mortise_call *, mortise_saved *saved, uint32_t *n_saved);
  /** [autograd]. NULL: forward runs under autograd, made of points and ATen operators, and builds no node of its own (a
   * composite). */
  MORTISE_PLUG(backward, mortise_call *, mortise_backward *);
} mortise_operator;

/** The object of `model`. */
typedef struct mortise_model {
  uint32_t struct_size, reserved;
  /** Declares segments, layers and parameters, in the order of forward. [build] */
  MORTISE_PLUG(declare, mortise_builder *);
  /** Runs one segment: args are the results of the one before (none for the first); call->batch has the fields. Under
   * autograd where the call has MORTISE_GRAD: what it computes with layers and LibTorch's operators is differentiated.
   * The last segment gives the loss by loop.term (loop.h), not in a replay (MORTISE_REPLAY), and by convention has
   * results[0] the sum of the loss (NONE without labels) and results[1] the logits [B, T, vocab] (NONE unless wanted).
   * Re-entrant; keeps parameters, never tensors. */
  MORTISE_PLUG(segment, mortise_call *, uint32_t index);
} mortise_model;

MORTISE_END
#endif
