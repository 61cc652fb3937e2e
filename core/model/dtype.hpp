// Element types by the names that a manifest writes.
#pragma once
#include <string_view>

#include "mortise/abi.h"

namespace mortise {

constexpr uint32_t dtype_named(std::string_view name) {
  return name == "fp32" ? MORTISE_F32 : name == "fp64" ? MORTISE_F64 : name == "bf16" ? MORTISE_BF16 : name == "fp16" ? MORTISE_F16 : MORTISE_NO_DTYPE;
}

}  // namespace mortise
