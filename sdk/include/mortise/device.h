/* The run's device, for kernels of one's own and for who watches its memory. On the host's processor everything is done
 * when its function returns: no queue, nothing to wait for. */
#ifndef MORTISE_DEVICE_H
#define MORTISE_DEVICE_H
#include "abi.h"
MORTISE_BEGIN

/** "mortise.device/0". Since 0.2 */
typedef struct mortise_device_api {
  uint32_t struct_size;
  /** The queue that this thread's operators are put on, as the device's own handle (cudaStream_t of CUDA), NULL on the
   * host's processor. A kernel that is launched there runs after every operator before it. It may be another in the
   * next call. [any-thread] */
  MORTISE_FN(stream, void **native);
  /** Bytes of the device's allocator: in use now, the most that were, and what the device has. On the host's processor
   * MORTISE_E_UNSUPPORTED: nobody counts there. */
  MORTISE_FN(memory, int64_t *used, int64_t *peak, int64_t *total);
  /** Gives back to the device what the allocator keeps for later; waits for the device. `*freed`: how many bytes. On
   * the host's processor 0. */
  MORTISE_FN(trim, int64_t *freed);
  /** 1: products of fp32 matrices may round their factors to TF32, from now on and in the whole process; 0, as at
   * first: not. On the host's processor MORTISE_E_UNSUPPORTED. */
  MORTISE_FN(fast_products, int on);
} mortise_device_api;

MORTISE_END
#endif
