// Gaussian noise over raw pointers, on a GPU.
#pragma once
#include <cstdint>

#include "mortise/philox.h"

namespace mortise::kernels {

// The gradient of one parameter, on the device: elements [first, first + length) of what `place` numbers, in `dtype`,
// one that gradients may have. The step of the place is not read.
struct NoiseSlice {
  void* x;
  int64_t length, first;
  mortise_philox place;
  uint32_t dtype;
};

// How much noise a step gets: scale · sqrt(eta / (1 + steps)^gamma). Scale and steps are read on the device, where they
// are mortise_ledger.scale and .attempted.
struct NoiseOfStep {
  const double* scale;
  const int64_t* steps;
  double eta, gamma;
};

/** The function `add_noise` of noise.h, of all slices in one launch, or in few. Nothing is read by the host, and a
 * recording of the launch can be played in later steps, with the bits and the deviation of those.
 *
 *  Memory    borrows every pointer until the stream has done it; allocates nothing.
 *  Repeats   the bits of `add_noise`, but for the deviation, whose pow may differ in the last bits before it is rounded
 *            to fp32.
 *  Returns   NULL, or CUDA's text of what was wrong with the launch.
 *  Since     0.2 */
const char* add_noise_cuda(const NoiseSlice* slices, int64_t n, const NoiseOfStep& noise, void* stream);

}  // namespace mortise::kernels
