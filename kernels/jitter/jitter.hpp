// The kernel over tensors, for plugins: allocates, and splits over the host's threads or launches on the run's GPU.
#pragma once
#include <span>

#include "kernels/cuda/ledger.hpp"
#include "kernels/cuda/place.hpp"
#include "kernels/jitter/jitter.h"
#include "kernels/jitter/jitter_cuda.h"

namespace mortise::kernels {

// For `supports`: MORTISE_CUDA, too, where the kernel for it was built.
inline bool jitter_runs_on(uint32_t device) {
  return device == MORTISE_CPU || (MORTISE_HAS_CUDA && device == MORTISE_CUDA);
}

// Factors between 1 - amount and 1 + amount as a new tensor in fp32, on the device of the run.
inline Tensor jitter(const mortise_philox& place, double amount, std::span<const int64_t> sizes) {
  Tensor factor = empty(MORTISE_F32, sizes);
  const Info to(factor);
  if (!jitter_runs_on(to.device)) throw Error(MORTISE_E_UNSUPPORTED, "jitter was built for the CPU only");
  if constexpr (MORTISE_HAS_CUDA)
    if (to.device == MORTISE_CUDA) {
      check_launch(jitter_cuda(on_device(place), amount, to.as<float>(), to.numel, stream_now()));
      return factor;
    }
  parallel_for(to.numel, 1 << 15,
               [&](int64_t begin, int64_t end) { jitter(place, amount, to.as<float>(), begin, end); });
  return factor;
}

}  // namespace mortise::kernels
