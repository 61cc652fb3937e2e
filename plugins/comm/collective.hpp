// One collective: what it must be.
#pragma once
#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>
#include <vector>

#include "mortise/cpp/comm.hpp"

namespace mortise::comm {

const char* name_of(const mortise_collective&);  // throws Error if there is no such kind
c10d::ReduceOp op_of(uint32_t op, const char* name);
const char* op_name(uint32_t op);  // of one that `op_of` knows
// Is nothing to be sent by any rank? Of an exchange no rank knows what the others have.
inline bool is_of_nothing(const mortise_collective& c) {
  return c.kind != MORTISE_ALL_TO_ALL && Info(c.out).numel == 0;
}
// Everything that can be wrong with it on this rank, number `rank` of n, whose tensors are to be on `device`
// (MORTISE_CPU, …): throws Error.
void check_fit(const mortise_collective&, int64_t rank, int64_t n, uint32_t device);
at::ScalarType type_of(uint32_t dtype);  // throws Error if there is no such type

// The group that a collective names, one of those that `made` has; throws Error if it is none of them.
template <class Group>
const Group& known_group(const mortise_collective& c, const std::vector<std::shared_ptr<Group>>& made) {
  for (const auto& group : made)
    if (group.get() == c.group) return *group;
  throw Error(MORTISE_E_ARGUMENT, "start: no group of ranks is at that address");
}

// Of an exchange among n ranks: [rows, elements of a row], and how many rows go to each, or come from each.
struct Rows {
  Rows(mortise_tensor* t, const int64_t* of_each, int64_t n);
  int64_t rows, elements;
  std::vector<int64_t> of_each;
};

}  // namespace mortise::comm
