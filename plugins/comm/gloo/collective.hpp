// One collective: what it must be, and how c10d begins it.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "mortise/cpp/core.hpp"

namespace mortise::comm {

const char* name_of(const mortise_collective&);  // throws Error if there is no such kind
c10d::ReduceOp op_of(uint32_t op, const char* name);
inline bool reads_in(const mortise_collective& c) {
  return c.kind == MORTISE_REDUCE_SCATTER || c.kind == MORTISE_ALL_GATHER;
}
// Everything that can be wrong with it on this rank, of n: throws Error.
void check_fit(const mortise_collective&, int64_t n);
// Of a collective that fits.
c10::intrusive_ptr<c10d::Work> begin(c10d::ProcessGroupGloo&, const mortise_collective&);

}  // namespace mortise::comm
