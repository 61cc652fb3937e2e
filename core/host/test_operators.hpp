// Operators of the tests, as pairs: what they compute is ATen's, so gradients can be compared bit for bit.
#pragma once
#include "core/host/test_host.hpp"

namespace mortise::testing {

// y = x · Wᵀ + b. Parameters PATH.weight [out, in] and PATH.bias; attributes are not looked at: `in` and `out` are
// given here.
Operator linear_pair(int64_t in = 8, int64_t out = 4);
// y = x · keep / (1 - p), bits from mortise.random at this site. Nothing is saved.
Operator dropout_pair(double p = 0.5);
// Two linear layers PATH.up and PATH.down: a composite, no node of its own.
Operator mlp_composite();

// Bytes of tensors that are alive, process-wide. The first one installs the counting; tensors made earlier are not
// seen.
class LiveBytes {
 public:
  static int64_t now();
  static int64_t peak();  // since the last reset
  static void reset_peak();
};

}  // namespace mortise::testing
