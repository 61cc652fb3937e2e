// A tensor handle is a retained c10::TensorImpl *: borrowing and handing over cost nothing.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "mortise/abi.h"
#include "mortise/cpp/strings.hpp"
#include "mortise/dtype.h"

namespace mortise {

inline at::Tensor share(const mortise_tensor* h) {
  if (!h) return {};
  auto* impl = reinterpret_cast<c10::TensorImpl*>(const_cast<mortise_tensor*>(h));
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(impl));
}
inline at::Tensor take(mortise_tensor* h) {
  if (!h) return {};
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(reinterpret_cast<c10::TensorImpl*>(h)));
}
inline mortise_tensor* give(at::Tensor t) {
  return t.defined() ? reinterpret_cast<mortise_tensor*>(t.unsafeReleaseTensorImpl()) : nullptr;
}
inline mortise_tensor* borrow(const at::Tensor& t) {
  return t.defined() ? reinterpret_cast<mortise_tensor*>(t.unsafeGetTensorImpl()) : nullptr;
}

inline mortise_value value_of(at::Tensor t) {
  if (!t.defined()) return {MORTISE_NONE, 0, {.i = 0}};
  return {MORTISE_TENSOR, 0, {.t = give(std::move(t))}};
}
inline at::Tensor tensor_of(const mortise_value& v) { return v.tag == MORTISE_TENSOR ? share(v.v.t) : at::Tensor(); }
inline bool any_requires_grad(const mortise_value* values, uint32_t n) {
  return std::any_of(values, values + n, [](const mortise_value& v) {
    return v.tag == MORTISE_TENSOR && v.v.t && share(v.v.t).requires_grad();
  });
}

inline at::ScalarType scalar_type(uint32_t dtype) {
  switch (dtype) {
#define MORTISE_DTYPE_ROW(symbol, number, bytes, name, safetensors, torch) \
  case number: return at::ScalarType::torch;
#include "mortise/dtypes.def"
#undef MORTISE_DTYPE_ROW
    default: return at::ScalarType::Undefined;
  }
}
inline uint32_t dtype_of(at::ScalarType type) {
  for (uint32_t dtype = 1; dtype < MORTISE_DTYPES; ++dtype)
    if (scalar_type(dtype) == type) return dtype;
  return MORTISE_NO_DTYPE;
}

}  // namespace mortise
