// The kernel over tensors, for plugins: allocates, and splits over the host's threads or launches on the GPU of x.
#pragma once
#include "kernels/cuda/ledger.hpp"
#include "kernels/cuda/place.hpp"
#include "kernels/dropout/dropout.h"
#include "kernels/dropout/dropout_cuda.h"
#include "mortise/cpp/operator.hpp"

namespace mortise::kernels {

// For `supports`: MORTISE_CUDA, too, where the kernel for it was built.
inline bool dropout_runs_on(uint32_t device) {
  return device == MORTISE_CPU || (MORTISE_HAS_CUDA && device == MORTISE_CUDA);
}

// x · keep · scale (+ residual) as a new tensor of `dtype`. The bits are those of x's elements in their order.
inline Tensor dropout(Ref x, Ref residual, const mortise_philox& place, double p, uint32_t dtype) {
  uint32_t x_dtype = Info(x).dtype, y_dtype = dtype;  // fp16 goes through fp32
  if (y_dtype != MORTISE_F64 && y_dtype != MORTISE_BF16) y_dtype = MORTISE_F32;
  if (y_dtype == MORTISE_F64 || (x_dtype != MORTISE_F32 && x_dtype != MORTISE_BF16)) x_dtype = y_dtype;
  const Tensor in = ops::contiguous(cast(x, x_dtype));
  const Tensor add = residual ? ops::contiguous(cast(residual, y_dtype)) : Tensor();
  Tensor y = empty(y_dtype, Info(in).shape());
  const Info from(in), to(y);
  const void* const add_data = add ? Info(add).data : nullptr;
  if (!dropout_runs_on(from.device)) throw Error(MORTISE_E_UNSUPPORTED, "dropout was built for the CPU only");
  if constexpr (MORTISE_HAS_CUDA)
    if (from.device == MORTISE_CUDA) {
      check_launch(dropout_cuda(on_device(place), p, x_dtype, from.data, add_data, y_dtype, to.data, 0, from.numel,
                                stream_now()));
      return cast(y, dtype);
    }
  parallel_for(from.numel, 1 << 15, [&](int64_t begin, int64_t end) {
    dropout(place, p, x_dtype, from.data, add_data, y_dtype, to.data, begin, end);
  });
  return cast(y, dtype);
}

}  // namespace mortise::kernels
