// The ledger of a step (mortise_ledger) as pointers that a kernel reads: nothing of it is known to the host.
#pragma once
#include <cstdint>

namespace mortise::kernels {

// Device pointers; `lr` and `weight_decay` have one number a group.
struct DeviceLedger {
  const double *multiplier, *verdict, *lr, *weight_decay;
  const int64_t* applied;  // steps before this one
};

}  // namespace mortise::kernels
