// LibTorch's operators behind the fake host's mortise.ops/0: called by schema, as the host calls them. Results are
// copies, also where LibTorch gives a view.
#pragma once
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>

#include "mortise/testing/fake_host.hpp"

namespace mortise::testing {

inline at::ScalarType scalar_type(uint32_t dtype) {
  switch (dtype) {
#define MORTISE_DTYPE_ROW(symbol, number, bytes, name, safetensors, torch) \
  case number: return at::ScalarType::torch;
#include "mortise/dtypes.def"
#undef MORTISE_DTYPE_ROW
    default: throw std::invalid_argument("no element type");
  }
}

// A tensor of the fake host as ATen sees it: the same memory.
inline at::Tensor shared(mortise_tensor* t) {
  const Info info(t);
  return at::from_blob(info.data, at::IntArrayRef(info.sizes, info.rank),
                       at::TensorOptions().dtype(scalar_type(info.dtype)));
}
inline Tensor copied(const at::Tensor& t) {
  uint32_t dtype = 1;
  while (scalar_type(dtype) != t.scalar_type()) ++dtype;
  Tensor out = empty(dtype, t.sizes());
  shared(out.get()).copy_(t);
  return out;
}

inline c10::IValue boxed(const mortise_value& v) {
  c10::List<at::Tensor> list;
  switch (v.tag) {
    case MORTISE_TENSOR: return shared(v.v.t);
    case MORTISE_INT: return v.v.i;
    case MORTISE_FLOAT: return v.v.f;
    case MORTISE_LOGICAL: return v.v.i != 0;
    case MORTISE_INTS: return c10::List<int64_t>(at::IntArrayRef(v.v.is, v.count));
    case MORTISE_DTYPE: return static_cast<int64_t>(scalar_type(static_cast<uint32_t>(v.v.i)));
    case MORTISE_TENSORS:
      for (uint32_t i = 0; i < v.count; ++i) list.push_back(shared(v.v.ts[i]));
      return list;
    default: return {};
  }
}

// Each by its name and overload: "add.Tensor".
inline void define_operators(FakeHost& host, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string schema = std::string("aten::") + name;
    const size_t dot = schema.find('.');
    const std::string overload = dot == std::string::npos ? "" : schema.substr(dot + 1);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(schema.substr(0, dot).c_str(), overload.c_str());
    host.op_list(schema, [op](std::span<const mortise_value> args) {
      torch::jit::Stack stack;
      for (const mortise_value& v : args) stack.push_back(boxed(v));
      op.callBoxed(stack);
      std::vector<Tensor> results;
      for (const c10::IValue& v : stack) {
        if (v.isTensor()) results.push_back(copied(v.toTensor()));
        if (!v.isTensorList()) continue;
        for (const at::Tensor& t : v.toTensorVector()) results.push_back(copied(t));
      }
      return results;
    });
  }
}

}  // namespace mortise::testing
