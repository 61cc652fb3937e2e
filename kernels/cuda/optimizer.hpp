// For optimizers with a kernel of CUDA: what surrounds its launch in a step.
#pragma once
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/ledger.hpp"
#include "mortise/cpp/optimizer.hpp"

namespace mortise::kernels {

// Where the value's bits go in the pass of the update, and their dtype; null where the value is not in 16 bits: then it
// is cast from the master.
struct CopyOf {
  explicit CopyOf(const mortise_slice& s) {
    if (!s.value) return;
    const Info value(s.value);
    if (value.dtype != MORTISE_BF16 && value.dtype != MORTISE_F16) return;
    data = value.data;
    dtype = static_cast<uint16_t>(value.dtype);
  }
  void* data = nullptr;
  uint16_t dtype = MORTISE_NO_DTYPE;
};

// Throws Error: the master is in 16 bits, which `optimizer` does not update.
inline void must_be_wide(const mortise_param_info* info, const std::string& optimizer) {
  if (info->master_dtype == MORTISE_F32 || info->master_dtype == MORTISE_F64) return;
  throw Error(
      MORTISE_E_CONFIG,
      optimizer + " updates weights in fp32 or fp64; those of " + std::string(view(info->name)) +
          " are in another dtype",
      "[precision.bf16], which keeps fp32 weights beside bf16 ones; weights in bf16 or fp16 alone are updated by "
      "[optimizer.adafactor] and [optimizer.adamw_8bit], in bf16 by [optimizer.adamw_anyprecision] too");
}

// Throws Error: the gradient is in a dtype that neither kernel reads.
inline void check_gradient(const Info& t, const mortise_slice& slice, const std::string& optimizer) {
  if (t.dtype == MORTISE_F32 || t.dtype == MORTISE_F64 || t.dtype == MORTISE_BF16) return;
  throw Error(MORTISE_E_UNSUPPORTED, optimizer + " reads gradients in fp32, fp64 and bf16; not that of " +
                                         std::string(view(slice.info->name)));
}

// make(slice, copy) is a slice as the kernel takes it; launch(slices, n, dtype) updates all whose masters are of
// `dtype` and returns what the launcher did.
template <class Make, class Launch>
void update_on_gpu(const mortise_slice* slices, uint32_t n, const Make& make, const Launch& launch) {
  using Slice = std::invoke_result_t<Make, const mortise_slice&, CopyOf>;
  std::map<uint32_t, std::vector<Slice>> by_dtype;
  for (uint32_t i = 0; i < n; ++i) {
    const mortise_slice& s = slice_at(slices, i);
    by_dtype[Info(s.master).dtype].push_back(make(s, CopyOf(s)));
  }
  for (const auto& [dtype, some] : by_dtype)
    check_launch(launch(some.data(), static_cast<int64_t>(some.size()), dtype));
  for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), CopyOf(slice_at(slices, i)).data != nullptr);
}

}  // namespace mortise::kernels
