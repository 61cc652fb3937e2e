// Element types by their names. sdk/include/mortise/dtypes.def is the table: a row there is all that these need.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mortise/dtype.h"

namespace mortise {

int64_t dtype_bytes(uint32_t dtype);          // of an element; 0 of what is none
uint32_t dtype_named(std::string_view name);  // MORTISE_BF16 of "bf16"; MORTISE_NO_DTYPE: no weight is of it
std::vector<std::string> dtype_names();       // all that a manifest may write
uint32_t weight_type(std::string_view name);  // "BF16", as safetensors calls it; likewise
std::vector<std::string> weight_types();

}  // namespace mortise
