#include "core/base/dtype.hpp"

namespace mortise {
namespace {

using Name = const char* mortise_dtype_row::*;

uint32_t called(std::string_view name, Name as) {
  for (const mortise_dtype_row& row : mortise_dtypes)
    if (mortise_dtype_is_float(row.dtype) && name == row.*as) return row.dtype;
  return MORTISE_NO_DTYPE;
}

std::vector<std::string> all(Name as) {
  std::vector<std::string> names;
  for (const mortise_dtype_row& row : mortise_dtypes)
    if (mortise_dtype_is_float(row.dtype)) names.emplace_back(row.*as);
  return names;
}

}  // namespace

int64_t dtype_bytes(uint32_t dtype) { return mortise_dtype_of(dtype)->bytes; }

uint32_t dtype_named(std::string_view name) { return called(name, &mortise_dtype_row::name); }

std::vector<std::string> dtype_names() { return all(&mortise_dtype_row::name); }

uint32_t weight_type(std::string_view name) { return called(name, &mortise_dtype_row::safetensors); }

std::vector<std::string> weight_types() { return all(&mortise_dtype_row::safetensors); }

}  // namespace mortise
