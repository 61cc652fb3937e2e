// For plugins: the ledger that the core gives as a kernel takes it, and a launch's error as an exception.
#pragma once
#include "kernels/cuda/ledger.h"
#include "mortise/cpp/core.hpp"

namespace mortise::kernels {

inline DeviceLedger device_ledger(const mortise_ledger& l) {
  const auto numbers = [](mortise_tensor* t) { return Info(t).as<const double>(); };
  return {numbers(l.multiplier), numbers(l.verdict), numbers(l.lr), numbers(l.weight_decay),
          Info(l.applied).as<const int64_t>()};
}

// `wrong`: what a launcher returned.
inline void check_launch(const char* wrong) {
  if (wrong) throw Error(MORTISE_E_OPERATOR, std::string("a kernel was not launched: ") + wrong);
}

}  // namespace mortise::kernels
