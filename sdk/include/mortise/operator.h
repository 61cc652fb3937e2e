/* Operators and models. A provider of an operator point gives forward and backward, a pair, and the host builds the
 * autograd node; without backward it is a composite, which autograd differentiates.
 *
 * The operators: attributes (at declaration), then arguments → results (at a call). N: any leading dimensions, [B, T]
 * as well as [B*T], the same in all arguments of a call. Arguments at the end that are NONE may be left out.
 *
 *   embedding       attrs  name vocab width init
 *                   call   ids [N] i64 → y [N, width]
 *   embedding_norm  attrs  name vocab positions types width eps kind init word position type norm
 *                   call   ids [N] i64, positions [N] or [T] i64, types [N] i64 or NONE → y [N, width], sum [N, width]
 *                          sum = rows of the tables; y = norm(sum); a composite
 *   norm            attrs  name width eps kind ("layer": weight and bias; "rms": weight)
 *                   call   x [N, width] → y [N, width] in the compute dtype; statistics in fp32
 *   residual_norm   attrs  those of norm, dropout
 *                   call   branch [N, width], residual [N, width] → y (compute dtype), sum (stream dtype)
 *                          sum = residual + dropout(branch); y = norm(sum)
 *   dropout         attrs  p
 *                   call   x → y
 *   linear          attrs  name in out bias layout activation init parts; layout "out_in" as torch, "in_out" as GPT-2's
 *                          Conv1D; activation "none" "gelu" "gelu_tanh" "relu" "silu" "tanh"; parts: so many equal ones
 *                          of `out` are packed into the weight (3: queries, keys, values), which its declaration says
 *                          groups: as many linears of one shape, whose number stands for the `*` in the name
 *                   call   x [N, in] → y [N, out]; with groups, ends [groups] i32: the rows of group g end before row
 *                          ends[g], those of the next begin there. What rows behind the last end get is undefined
 *   rope            attrs  head_dim theta layout ("half": pairs are head_dim / 2 apart, "pairs": side by side)
 *                          factor: frequencies are divided by it; with context those alone that turn around in so many
 *                          positions less than low times; above high times they stay, between the two in part
 *                   call   x [B, T, heads·head_dim], positions [T] or [B, T] i64, or NONE: 0 1 2 … → y like x
 *   attention       attrs  heads kv_heads head_dim causal window scale dropout mask bias
 *                   call   q [B, T, heads·head_dim], k and v [B, S, kv_heads·head_dim], mask or NONE, bias or NONE
 *                          → y [B, T, heads·head_dim]; without k and v, q has all three packed side by side. The last
 *                          query stands where the last key does. kv_heads: each serves heads / kv_heads heads of
 *                          queries. window: keys that far away or farther are not seen. scale: 0 is
 *                          1 / sqrt(head_dim). mask says which one may come:
 *                            "none"
 *                            "keys"      [B, S], boolean (true: seen) or numbers that are added to the scores
 *                            "segments"  [B, T] i64: positions see those with their own number
 *                            "full"      [B or 1, heads or 1, T or 1, S or 1], boolean or numbers
 *                          bias (true: one may come): as "full", numbers added to the scores, with a gradient
 *   self_attention  attrs  name width heads kv_heads head_dim causal window dropout mask bias layout init init_out
 *                          theta rope_layout rope_factor rope_low rope_high rope_context; qkv: the name of one packed
 *                          linear, else q k v: those of three; out
 *                   call   x [B, T, width], positions or NONE, mask or NONE → y [B, T, width]; a composite of linear,
 *                          rope (if theta is given) and attention
 *   gated           attrs  activation ("silu" "gelu" "gelu_tanh" "relu")
 *                   call   gate [N, inner], up [N, inner] → activation(gate) · up
 *   mlp             attrs  name up down gate width inner activation bias layout init_up init_down; gate: the name of a
 *                          third linear, whose activation multiplies the other's result; groups: of its linears
 *                   call   x [N, width], ends with groups → y [N, width]; a composite of linear and gated
 *   head_loss       attrs  name vocab width tie init bias smoothing
 *                   call   x [N, width], labels [N] i64 (-100: ignored) or NONE
 *                          → sum of the cross-entropy (NONE without labels), logits (NONE unless wanted)
 *   loss            attrs  smoothing
 *                   call   logits [N, classes], labels [N] i64 (-100: ignored) → sum of the cross-entropy
 *
 * Attributes by type; those with a default may be left out:
 *   INT      vocab width in out inner heads head_dim (width / heads), parts groups (1), kv_heads (heads), window (0),
 *            positions, types (0: none), context (0: factor is of all)
 *   FLOAT    eps (1e-5), p and dropout (0), init init_up init_down init_out (0.02: standard deviation of the weights),
 *            theta (rope: 10000; self_attention: 0, none), scale (0), smoothing (0),
 *            factor (1), low and high (0)
 *   LOGICAL  bias (true; attention and head_loss: false), causal (false)
 *   TEXT     name (the path), layout ("out_in"; rope: "half"), activation (linear: "none", mlp: "gelu", gated: "silu"),
 *            kind ("layer"), mask ("none"), and names of parts: up down q k v out word position type norm (their own),
 *            gate qkv (none)
 *   PARAM    tie: the head's weight is that parameter
 *
 * `name` is the prefix of the parameters' names; names of parts are the last parts of the paths of a composite's
 * layers.
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
  uint32_t n_attrs;
  uint32_t is_recorded; /* the step is, which calls it: it cannot wait for the device there. Since 0.2 */
} mortise_place;

/** The object of an operator point. Forward and backward are re-entrant and keep nothing between calls.
 *  Results must be new tensors: an argument or a view of one is refused. In the first step of a run their element types
 *  are compared with what [operator.NAME] dtypes says of them. */
typedef struct mortise_operator {
  uint32_t struct_size, flags;
  /** Declares parameters and sub-layers; `*data` comes back as call->layer_data and stays the plugin's. [build] */
  MORTISE_PLUG(declare, mortise_builder *, const mortise_layer_spec *, void **data);
  /** Can it run there? If not, `*why` says so in a few words and `*fix` what to write instead; both live as long as the
   * plugin. [build] */
  MORTISE_PLUG(supports, const mortise_place *, int *yes, mortise_str *why, mortise_str *fix);
  /** Runs with autograd off if there is a backward. `*n_saved` is 0 on entry. */
  MORTISE_PLUG(forward, mortise_call *, mortise_saved *saved, uint32_t *n_saved);
  /** [autograd]. NULL: forward runs under autograd (a composite); it is made of points, of ATen operators and, where
   * these have no gradient, of nodes of its own (autograd.h). */
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
