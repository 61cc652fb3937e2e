/* The run's device, for kernels of one's own and for who watches its memory. On the host's processor everything is done
 * when its function returns: no queue, nothing to wait for. */
#ifndef MORTISE_DEVICE_H
#define MORTISE_DEVICE_H
#include "abi.h"
MORTISE_BEGIN

/** A queue beside that of the steps; what lies on two of them runs in any order, or at once. */
typedef struct mortise_stream mortise_stream;
/** A place in a queue: all that was put there before it. */
typedef struct mortise_mark mortise_mark;

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
  /** A queue of one's own, for the life of the process; one of a few dozen that there are. On the host's processor
   * NULL, and so is every mark: whoever passes them on works there too. [any-thread] */
  MORTISE_FN(new_stream, mortise_stream **out);
  /** Calls `body`, and gives what it gives; operators of this thread are put on `stream` meanwhile, and tensors that
   * are made are of that queue: memory that is released goes to the next that is made there. NULL: as without this
   * call. [any-thread] */
  MORTISE_FN(with_stream, mortise_stream *stream, mortise_status (*body)(void *user) MORTISE_NOEXCEPT, void *user);
  /** The place where this thread's queue is now. The caller's, to be dropped. [any-thread] */
  MORTISE_FN(mark, mortise_mark **out);
  /** What this thread puts on its queue from now on runs after all that lies before `mark`. Nobody waits here. */
  MORTISE_FN(wait_for, const mortise_mark *mark);
  /** NULL is nothing. [any-thread] */
  MORTISE_FN_VOID(drop_mark, mortise_mark *mark);
  /** The memory of `t`, which was made on another queue, is not given to others before all that lies on this thread's
   * queue when `t` is released has run. For each tensor that is used on a queue it was not made on. [any-thread] */
  MORTISE_FN(record_stream, mortise_tensor *t);
} mortise_device_api;

MORTISE_END
#endif
