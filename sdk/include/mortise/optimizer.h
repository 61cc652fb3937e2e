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

MORTISE_END
#endif
