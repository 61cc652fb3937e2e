/* LibTorch's operators by schema. In C++ use the typed ones of mortise/cpp/ops.hpp. */
#ifndef MORTISE_OPS_H
#define MORTISE_OPS_H
#include "abi.h"
MORTISE_BEGIN

/** "mortise.ops/0" */
typedef struct mortise_ops_api {
  uint32_t struct_size;
  /** "aten::add.Tensor": name and overload. Interned: look it up once and keep it. MORTISE_E_NOT_FOUND names the
   * LibTorch in use. */
  MORTISE_FN(find, mortise_str schema, mortise_op **out);
  /** Calls it with every argument of its schema, in order. Writes up to `m` results (a list result takes one place an
   * element) and their number. In-place and out variants return handles too; release them. Inside an operator pair
   * nothing is recorded by autograd. */
  MORTISE_FN(call, const mortise_op *, const mortise_value *args, uint32_t n, mortise_value *results, uint32_t m,
             uint32_t *count);
  /** The usual case: one tensor out. */
  MORTISE_FN(call1, const mortise_op *, const mortise_value *args, uint32_t n, mortise_tensor **out);
} mortise_ops_api;

MORTISE_END
#endif
