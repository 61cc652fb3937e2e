// A place in the random stream whose step lies on the device, so that a recording that is played again draws the bits
// of its own step.
#pragma once
#include <cstdint>

#include "mortise/philox.h"

namespace mortise::kernels {

struct DevicePlace {
  mortise_philox place;  // all but its step, which nobody reads
  const int64_t* step;   // on the device: mortise_ledger.attempted
};

// For a kernel. The host's own place has as many bits of the step.
MORTISE_BOTH inline mortise_philox place_now(const DevicePlace& p) {
  mortise_philox place = p.place;
  place.step = static_cast<uint32_t>(*p.step);
  return place;
}

}  // namespace mortise::kernels
