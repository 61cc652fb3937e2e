// What lies along an axis of ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/declaration.hpp"

namespace mortise {

// What number `rank` along the axis has of a whole parameter, or of what lies beside one: a view, without elements
// where it has none.
inline at::Tensor placed_part(const at::Tensor& whole, const Placement& at, int rank) {
  if (at.owner >= 0) return rank == at.owner ? whole : whole.view(-1).narrow(0, 0, 0);
  const int64_t each = whole.size(static_cast<int64_t>(at.dim)) / at.ranks;
  return whole.narrow(static_cast<int64_t>(at.dim), rank * each, each);
}

}  // namespace mortise
