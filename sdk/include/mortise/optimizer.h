/* Optimizers. Two forms: the device form, two functions over slices, no synchronisation; and the simple form, written
 * in ten minutes with list operations and host numbers, at the price of one synchronisation a step. */
#ifndef MORTISE_OPTIMIZER_H
#define MORTISE_OPTIMIZER_H
#include "config.h"
#include "loop.h"
#include "params.h"
#include "tensor.h"
MORTISE_BEGIN

/** One state of one parameter. `relation`: "same" (the parameter's shape), "rows", "columns", "scalar". Filled with
 * `fill` at first. */
typedef struct mortise_state_spec {
  mortise_str name, relation;
  uint32_t dtype, reserved;
  double fill;
} mortise_state_spec;
enum { MORTISE_MAX_STATES = 8 };

/** A piece of a parameter as the optimizer sees it. All tensors are contiguous and of one length; `value` is the
 * compute face when that is other memory than `master` (NULL otherwise): an optimizer that declares
 * MORTISE_WRITES_VALUE fills it too, else the core casts. */
typedef struct mortise_slice {
  uint32_t struct_size, n_states;
  int32_t group; /* index into the ledger's lr and weight_decay */
  uint32_t reserved;
  mortise_param *param;
  const mortise_param_info *info;
  int64_t offset, length; /* in elements of the parameter */
  mortise_tensor *master, *grad, *value;
  mortise_tensor *const *states; /* in the order of `states` */
} mortise_slice;

enum { MORTISE_WRITES_VALUE = 1 };

/** The object of `optimizer`, device form. */
typedef struct mortise_optimizer {
  uint32_t struct_size, flags;
  /** The states of a parameter; writes at most MORTISE_MAX_STATES. [build] */
  MORTISE_PLUG(states, const mortise_param_info *, mortise_state_spec *, uint32_t *n);
  /** One update of every slice; only slices that got a gradient this step. Uses gradient × multiplier, changes nothing
   * when the verdict is 0, and does not look at either on the host unless plugin.toml says `syncs`. Gradients are dead
   * afterwards. [loop] */
  MORTISE_PLUG(step, const mortise_slice *, uint32_t n, const mortise_ledger *);
} mortise_optimizer;

/* ---- the simple form ---- */

typedef struct mortise_list mortise_list; /* tensors handled together; elementwise operations over all of them */

/** One group: same lr and weight decay. */
typedef struct mortise_optimizer_group {
  uint32_t struct_size, n_states;
  double lr, weight_decay;
  double grad_multiplier; /* true gradient = in memory × this */
  int64_t applied;        /* steps applied before this one */
  mortise_list *params, *grads;
  mortise_list *const
      *state; /* in the order of `states`, each "same" and zero at first, saved and sharded by the host */
} mortise_optimizer_group;

/** The object of `optimizer`, simple form (attachment flag MORTISE_SIMPLE_OPTIMIZER). `step` is called once a group, on
 * applied steps only. */
typedef struct mortise_optimizer_simple {
  uint32_t struct_size, n_states;
  const mortise_str *states;
  MORTISE_PLUG(step, const mortise_optimizer_group *);
} mortise_optimizer_simple;

/** "mortise.lists/0". A trailing underscore works in place on the first list. New lists are owned by the caller:
 * release them. */
typedef struct mortise_lists_api {
  uint32_t struct_size;
  MORTISE_FN(scaled, const mortise_list *a, double factor,
             mortise_list **out); /* a · factor, in the dtype of the master */
  MORTISE_FN(lerp, const mortise_list *a, const mortise_list *b, double weight,
             mortise_list **out); /* a + weight (b - a) */
  MORTISE_FN(lerp_, mortise_list *a, const mortise_list *b, double weight);
  MORTISE_FN(mul_, mortise_list *a, double factor);
  MORTISE_FN(add_, mortise_list *a, const mortise_list *b, double factor); /* a += factor · b */
  MORTISE_FN(addcmul_, mortise_list *a, const mortise_list *b, const mortise_list *c,
             double factor); /* a += factor · b · c */
  MORTISE_FN(addcdiv_, mortise_list *a, const mortise_list *b, const mortise_list *c,
             double factor); /* a += factor · b / c */
  MORTISE_FN(sqrt, const mortise_list *a, mortise_list **out);
  MORTISE_FN(add_scalar_, mortise_list *a, double value);
  MORTISE_FN(sign_, mortise_list *a);
  MORTISE_FN_VOID(release, mortise_list *);
  /** The tensors, borrowed. */
  MORTISE_FN(items, const mortise_list *, mortise_tensor *const **tensors, uint32_t *n);
} mortise_lists_api;

MORTISE_END
#endif
