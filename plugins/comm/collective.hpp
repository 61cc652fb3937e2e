// One collective: what it must be.
#pragma once
#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "mortise/cpp/core.hpp"

namespace mortise::comm {

const char* name_of(const mortise_collective&);  // throws Error if there is no such kind
c10d::ReduceOp op_of(uint32_t op, const char* name);
inline bool reads_in(const mortise_collective& c) {
  return c.kind == MORTISE_REDUCE_SCATTER || c.kind == MORTISE_ALL_GATHER;
}
// Everything that can be wrong with it on this rank, of n, whose tensors are to be on `device` (MORTISE_CPU, …): throws
// Error.
void check_fit(const mortise_collective&, int64_t n, uint32_t device);
at::ScalarType type_of(uint32_t dtype);  // throws Error if there is no such type

}  // namespace mortise::comm
