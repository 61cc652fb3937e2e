/* Parameters and their gradients.
 *
 * A parameter has a compute copy, the value that layers use, and a master, the value that the optimizer updates.
 * Optimizers and checkpoints see slices of master, gradient and states (optimizer.h). Without a precision plugin
 * compute copy and master are the same memory. */
#ifndef MORTISE_PARAMS_H
#define MORTISE_PARAMS_H
#include "abi.h"
MORTISE_BEGIN

/** Fixed at declaration: name, role, dims, sizes, init, parts. A listener of params.declared may set the fields
 * "trainable", "update_on_host", "states_in_store" (LOGICAL), "value_dtype", "master_dtype", "grad_dtype" (DTYPE) and,
 * once, "place.AXIS", of an axis of ranks (ranks.h): INT, which of the ranks along it has all of the parameter; TEXT, a
 * dimension, of which each has as much. `sizes` and `numel` are then those of what this rank has, 0 of what it has not;
 * its value is used here alone. */
typedef struct mortise_param_info {
  uint32_t struct_size, rank;
  mortise_str name; /* Hugging Face's: "h.0.attn.c_attn.weight" */
  mortise_str role; /* exactly one of: matrix vector norm embedding buffer */
  const mortise_str *tags;
  const mortise_str *dims; /* logical names: "out", "in", "vocab", "width", … */
  const int64_t *sizes;
  uint32_t n_tags, value_dtype, master_dtype, grad_dtype;
  int32_t trainable, group; /* group: index of lr and weight decay in the ledger, -1 if frozen */
  int64_t numel;
  /** The parts of a packed parameter, as mortise_param_spec has them; 0 of them: it is one. Since 0.2 */
  uint32_t part_dim, n_parts;
  const int64_t *parts;
  /** The segment that declared it, in order of declaration. Since 0.2 */
  int32_t segment;
  /** 1: once it is trained, its master and all that is kept beside it lie in the host's memory, whatever the run's
   * device, and its update is computed there: the optimizer gets slices, and a ledger, of the host. Its value and its
   * gradient stay on the device. Since 0.2 */
  int32_t update_on_host;
  /** So many ranks have these elements and see other samples than this one, which is number `replica` of them: its
   * gradient is summed over them. Since 0.2 */
  int32_t replicas, replica;
  /** The axis along which ranks have other elements of it; empty: all have the same. Since 0.2 */
  mortise_str axis;
  /** 1: as update_on_host, and what its optimizer keeps lies in the store of a plugin (mortise_state_store of
   * optimizer.h), and in memory only while it is updated. Since 0.2 */
  int32_t states_in_store;
} mortise_param_info;

/** A tensor beside a parameter: a state of an optimizer, or what another plugin keeps. `relation` is one of
 *   "same"      the parameter's shape
 *   "rows"      without its last dimension; "columns": without the one before the last
 *   "scalar"    one number
 *   "blocks:N"  a number for every N elements of the parameter, in memory order; the last block may be shorter
 *   "copy"      the parameter's shape, a copy of its first master. Since 0.2, as "blocks:N"
 * Filled with `fill` at first. */
typedef struct mortise_state_spec {
  mortise_str name, relation;
  uint32_t dtype, reserved;
  double fill;
} mortise_state_spec;
enum { MORTISE_MAX_STATES = 8 }; /* of one plugin beside one parameter */

/** A piece of a parameter as an optimizer sees it. All tensors are contiguous. Master, gradient, value and states that
 * are "same" or "copy" have `length` elements; of "blocks:N" a piece has a number for every N of its elements; "rows",
 * "columns" and "scalar" are those of the whole parameter, which is then not cut. `value` is their compute copy: an
 * optimizer that declares MORTISE_WRITES_VALUE fills it, of any other the core casts. NULL, and then nothing is to be
 * filled: it is the master's memory, or ranks put masters together before the core casts. */
typedef struct mortise_slice {
  uint32_t struct_size, n_states;
  int32_t group; /* index into the ledger's lr and weight_decay */
  uint32_t reserved;
  mortise_param *param;
  const mortise_param_info *info;
  int64_t offset, length; /* in elements of the parameter */
  mortise_tensor *master, *grad, *value;
  mortise_tensor *const *states; /* in the order of `states`, or of `keep` */
} mortise_slice;

/** "mortise.params/0" */
typedef struct mortise_params_api {
  uint32_t struct_size;
  MORTISE_FN(info, const mortise_param *, const mortise_param_info **); /* lives as long as the run */
  MORTISE_FN(find, mortise_str name, mortise_param **);
  /** [build] Only inside params.declared, only fields that plugin.toml says it writes. */
  MORTISE_FN(set, mortise_param *, mortise_str field, mortise_value);
  /** The tensor to compute with in this call, owned; never keep it beyond the call. Counts as a use: the parameter is
   * ready when every use's gradient has arrived. Inside an operator pair it is the plain value; elsewhere an alias
   * whose gradient arrives here. On a thread that is in no call: MORTISE_E_ARGUMENT, rather than a value whose gradient
   * is lost. */
  MORTISE_FN(use, mortise_param *, mortise_tensor **);
  /** Keeps a tensor beside this parameter: allocated with it, counted by `plan`, in every checkpoint, and there when
   * the run is resumed or evaluated. [build] Only inside params.declared. Since 0.2 */
  MORTISE_FN(keep, mortise_param *, const mortise_state_spec *);
  /** The trainable parameters; `states` are what this plugin keeps beside each, and `grad` is NULL before the first
   * backward of a step, and where a step brought none. Of what is sharded over ranks (ranks.h) each has its elements,
   * which may be none. The array lives until this plugin asks again. [loop] Never inside `micro`. Since 0.2 */
  MORTISE_FN(slices, const mortise_slice **, uint32_t *n);
  /** This parameter's master was written, on every rank: its compute copy is cast again. [loop] Never inside `micro`;
   * inside step.commit for who says `writes = ["masters"]`. Since 0.2 */
  MORTISE_FN(publish, mortise_param *);
} mortise_params_api;

/** "mortise.grads/0": for backwards of operator pairs. Gradients in memory are scale × true; the core owns the buffers
 * and never zeroes them. */
typedef struct mortise_grads_api {
  uint32_t struct_size;
  /** The buffer of the gradient itself, owned, if it has this dtype: *add 0, to be overwritten whole; 1, to be added
   * to, as a product that accumulates does. NULL otherwise: compute a temporary and `sum` it. NULL also for a frozen
   * parameter. `add` may be NULL: then only a buffer that may be overwritten is given. Every call is one contribution.
   * [autograd] `add` since 0.2 */
  MORTISE_FN(target, mortise_param *, uint32_t dtype, mortise_tensor **out, int32_t *add);
  /** Adds a contribution, any float dtype, the parameter's shape. A frozen parameter's is ignored. [autograd] */
  MORTISE_FN(sum, mortise_param *, mortise_tensor *contribution);
  /** The global gradient norm in true units, float64, 0-dim, owned; computed once a step. [loop, after backward] */
  MORTISE_FN(norm, mortise_tensor **out);
} mortise_grads_api;

MORTISE_END
#endif
