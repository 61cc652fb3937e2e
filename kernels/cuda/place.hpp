// For plugins: a place in the random stream as a kernel takes it.
#pragma once
#include "kernels/cuda/place.h"
#include "mortise/cpp/core.hpp"

namespace mortise::kernels {

// While a run trains. The host's number of the step stays behind: in a recording it would be an old one.
inline DevicePlace on_device(mortise_philox place) {
  place.step = 0;
  return {place, step_on_device()};
}

}  // namespace mortise::kernels
