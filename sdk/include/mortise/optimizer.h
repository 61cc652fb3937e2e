/* Optimizers: two functions over slices, without a synchronisation. simple_optimizer.h is an adapter over this form:
 * numbers on the host and lists of tensors, at the price of one synchronisation a step. */
#ifndef MORTISE_OPTIMIZER_H
#define MORTISE_OPTIMIZER_H
#include "config.h"
#include "loop.h"
#include "params.h"
#include "tensor.h"
MORTISE_BEGIN

enum { MORTISE_WRITES_VALUE = 1 };

/** The object of `optimizer`. */
typedef struct mortise_optimizer {
  uint32_t struct_size, flags;
  /** The states of a parameter; writes at most MORTISE_MAX_STATES. [build] */
  MORTISE_PLUG(states, const mortise_param_info *, mortise_state_spec *, uint32_t *n);
  /** One update of every slice, in several calls where slices are updated on the host (update_on_host of params.h);
   * only slices that got a gradient this step. Uses gradient × multiplier, changes nothing
   * when the verdict is 0, and does not look at either on the host unless plugin.toml says `syncs`. It may
   * overwrite gradients: nobody reads them afterwards. [loop] */
  MORTISE_PLUG(step, const mortise_slice *, uint32_t n, const mortise_ledger *);
  /** Bytes that `step` keeps of its own beside a parameter on a device of this kind (MORTISE_CPU, MORTISE_CUDA): no
   * state, and in no checkpoint, but counted by the plan. NULL: none. [build] Since 0.2 */
  MORTISE_PLUG(workspace, const mortise_param_info *, uint32_t device, int64_t *bytes);
} mortise_optimizer;

/** Bytes of a store, both multiples of MORTISE_STORE_BLOCK. */
typedef struct mortise_extent {
  int64_t offset, bytes;
} mortise_extent;
enum { MORTISE_STORE_BLOCK = 4096 };

/** The object of `states.store`: where the states of parameters with `states_in_store` lie between two updates; of this
 * rank, and for this process only: what outlives it is in checkpoints. An update fetches and takes one piece after
 * another, at most two at a time, so that the next one comes while the one before is updated and goes:
 *   fetch 0 · fetch 1 · take 0 · put 0 · fetch 2 · take 1 · put 1 · … · finish
 * What fails meanwhile is told by the next call that waits. [loop] Since 0.2 */
typedef struct mortise_state_store {
  uint32_t struct_size, reserved;
  /** Once, before the first step: room for so many bytes, which are 0. *all: these bytes as memory, as long as the
   * plugin lives, for who reads or writes them between two updates, such as a checkpoint. [build] */
  MORTISE_PLUG(open, int64_t bytes, void **all);
  /** Begins to bring the next piece: these extents, one after another. Does not wait. */
  MORTISE_PLUG(fetch, const mortise_extent *, uint32_t n);
  /** Waits for the piece that was fetched first and not taken yet. Its memory, aligned to a block, may be written until
   * `put`. */
  MORTISE_PLUG(take, void **piece);
  /** The piece that was taken is updated: begins to store it. Does not wait. */
  MORTISE_PLUG(put, uint32_t reserved);
  /** Waits until everything is stored, and the memory of `open` has it. */
  MORTISE_PLUG(finish, uint32_t reserved);
  /** For the plan, before `open`: where the states will lie; and how many bytes of memory an update takes whose largest
   * piece has so many. [build] */
  MORTISE_PLUG(describe, mortise_str *about);
  MORTISE_PLUG(memory, int64_t piece, int64_t *bytes);
} mortise_state_store;

MORTISE_END
#endif
