/* Nodes of one's own in the autograd graph. Operators do not need this: the host builds their nodes (operator.h). */
#ifndef MORTISE_AUTOGRAD_H
#define MORTISE_AUTOGRAD_H
#include "abi.h"
MORTISE_BEGIN

/** A node: forward runs with autograd off; backward [autograd] gets one gradient an output (NULL: undefined) and gives
 * one an input (NULL: none), owned by the host. `state` is dropped exactly once: after backward released it, when the
 * graph is freed, or when forward failed. */
typedef struct mortise_node_fns {
  uint32_t struct_size, flags;
  mortise_str name;
  mortise_status (*forward)(void *state, mortise_node *, const mortise_value *in, uint32_t n, mortise_value *out,
                            uint32_t m) MORTISE_NOEXCEPT;
  mortise_status (*backward)(void *state, mortise_node *, mortise_tensor *const *grad_out, uint32_t m,
                             mortise_tensor **grad_in, uint32_t n) MORTISE_NOEXCEPT;
  void (*drop)(void *state) MORTISE_NOEXCEPT;
} mortise_node_fns;
enum {
  MORTISE_NODE_REQUIRES_GRAD = 1
}; /* outputs require a gradient even if no input does: parameters are used inside */

/** Who keeps what is saved for backward until then, somewhere else. May be called from several threads at once. Since
 * 0.2 */
typedef struct mortise_saver {
  uint32_t struct_size, reserved;
  /** Takes in a tensor that forward saves: `*token` stands for its bytes from here on. NULL, as on entry: it stays
   * where it is. The tensor may be another's too, saved twice, and is not written any more. [loop, autograd] */
  mortise_status (*take)(void *self, mortise_tensor *, void **token) MORTISE_NOEXCEPT;
  /** The same bytes in a tensor of the same dtype, sizes and device; owned. At each backward. [autograd] */
  mortise_status (*give)(void *self, void *token, mortise_tensor **out) MORTISE_NOEXCEPT;
  /** The graph has let go of it; exactly once. [any-thread] */
  void (*drop)(void *self, void *token) MORTISE_NOEXCEPT;
} mortise_saver;

/** Flags of `backward`. */
enum { MORTISE_RETAIN_GRAPH = 1, MORTISE_CREATE_GRAPH = 2 };

/** "mortise.autograd/0" */
typedef struct mortise_autograd_api {
  uint32_t struct_size;
  MORTISE_FN(apply, const mortise_node_fns *, void *state, const mortise_value *in, uint32_t n, mortise_value *out,
             uint32_t m);
  MORTISE_FN(save, mortise_node *, mortise_tensor *const *, uint32_t n); /* in forward, once; a NULL stays NULL */
  MORTISE_FN(saved, mortise_node *, uint32_t index, mortise_tensor **owned);
  /** A leaf over the same bytes, cut off from the graph. */
  MORTISE_FN(detach, mortise_tensor *, int requires_grad, mortise_tensor **out);
  /** Backward from `roots` with `seeds`; nests inside a node's backward. Gradients of `inputs` (leaves made by
   * `detach`) come back in `grads` (NULL: none), those of parameters go to their buffers as ever. */
  MORTISE_FN(backward, mortise_tensor *const *roots, mortise_tensor *const *seeds, uint32_t n,
             mortise_tensor *const *inputs, mortise_tensor **grads, uint32_t m, uint32_t flags);
  /** As `next` of call.h: what operator pairs and nodes in there save for backward goes through `saver`, which lives as
   * long as the run; not values of parameters, nor what LibTorch's own operators save. `self` is handed to its
   * functions. Since 0.2 */
  MORTISE_FN(next_saving, mortise_next *, mortise_call *, const mortise_saver *saver, void *self);
} mortise_autograd_api;

MORTISE_END
#endif
