/* Tensors: opaque, reference-counted handles. */
#ifndef MORTISE_TENSOR_H
#define MORTISE_TENSOR_H
#include "abi.h"
MORTISE_BEGIN

enum { MORTISE_CPU = 0, MORTISE_CUDA = 1 };
enum { MORTISE_CONTIGUOUS = 1, MORTISE_REQUIRES_GRAD = 2 }; /* mortise_tensor_info.flags */

/** Borrowed from the tensor: valid while the handle is held and the tensor is not resized. Strides are in elements.
 * Whoever asks sets struct_size first; nothing behind it is written. */
typedef struct mortise_tensor_info {
  uint32_t struct_size, rank;
  const int64_t *sizes, *strides;
  int64_t numel;
  void *data;
  uint32_t dtype, device, device_index, flags;
} mortise_tensor_info;

/** Whoever writes through `data` calls `written` afterwards, so that autograd notices a stale saved value. */
typedef struct mortise_tensor_api {
  uint32_t struct_size;
  MORTISE_FN(info, const mortise_tensor *, mortise_tensor_info *);
  MORTISE_FN_VOID(retain, mortise_tensor *);
  MORTISE_FN_VOID(release, mortise_tensor *); /* NULL is fine */
  /** Uninitialised and contiguous, on the device of the run (or the CPU if `on_cpu`). */
  MORTISE_FN(empty, uint32_t dtype, const int64_t *sizes, uint32_t rank, int on_cpu, mortise_tensor **out);
  MORTISE_FN_VOID(written, mortise_tensor *);
  /** Copies a contiguous tensor's bytes to the host; waits for the device. `bytes` must be the tensor's size. */
  MORTISE_FN(read, const mortise_tensor *, void *to, size_t bytes);
} mortise_tensor_api;

MORTISE_END
#endif
