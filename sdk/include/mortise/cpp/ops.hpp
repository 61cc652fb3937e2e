// Typed LibTorch operators, each looked up once a library. Only those that some plugin uses; a new one is one line.
#pragma once
#include "mortise/cpp/core.hpp"

namespace mortise {

// An interned operator.
class Op {
 public:
  explicit Op(const char* schema) { check(api.ops->find(api.host, str(schema), &op_)); }
  // One tensor out.
  template <class... Args>
  Tensor operator()(const Args&... args) const {
    const mortise_value v[] = {value(args)...};
    Tensor out;
    check(api.ops->call1(api.host, op_, v, sizeof...(Args), out.put()));
    return out;
  }
  // Several tensors out; an undefined one is empty.
  template <size_t N, class... Args>
  std::array<Tensor, N> many(const Args&... args) const {
    const mortise_value v[] = {value(args)...};
    mortise_value r[N] = {};
    uint32_t n = 0;
    check(api.ops->call(api.host, op_, v, sizeof...(Args), r, N, &n));
    std::array<Tensor, N> out;
    for (size_t i = 0; i < N && i < n; ++i) out[i] = take(r[i]);
    return out;
  }

 private:
  mortise_op* op_ = nullptr;
};

namespace ops {
#define MORTISE_OP(name, schema)            \
  inline const Op& name() {                 \
    static const Op op("aten::" schema);    \
    return op;                              \
  }
MORTISE_OP(add_op, "add.Tensor")
MORTISE_OP(add__op, "add_.Tensor")
MORTISE_OP(mul_op, "mul.Tensor")
MORTISE_OP(mul_scalar_op, "mul.Scalar")
MORTISE_OP(div_op, "div.Tensor")
MORTISE_OP(mm_op, "mm")
MORTISE_OP(mm_out_op, "mm.out")
MORTISE_OP(addmm_op, "addmm")
MORTISE_OP(t_op, "t")
MORTISE_OP(view_op, "view")
MORTISE_OP(reshape_op, "reshape")
MORTISE_OP(transpose_op, "transpose.int")
MORTISE_OP(permute_op, "permute")
MORTISE_OP(contiguous_op, "contiguous")
MORTISE_OP(narrow_op, "narrow")
MORTISE_OP(select_op, "select.int")
MORTISE_OP(sum_dim_op, "sum.dim_IntList")
MORTISE_OP(sum_op, "sum")
MORTISE_OP(to_op, "to.dtype")
MORTISE_OP(copy__op, "copy_")
MORTISE_OP(isfinite_op, "isfinite")
MORTISE_OP(add_scalar_op, "add.Scalar")
MORTISE_OP(reciprocal_op, "reciprocal")
MORTISE_OP(clamp_max_op, "clamp_max")
#undef MORTISE_OP

inline Tensor add(Ref a, Ref b) { return add_op()(a, b, 1); }
inline Tensor mul(Ref a, Ref b) { return mul_op()(a, b); }
inline Tensor mul(Ref a, double f) { return mul_scalar_op()(a, f); }
inline Tensor div(Ref a, Ref b) { return div_op()(a, b); }
inline Tensor mm(Ref a, Ref b) { return mm_op()(a, b); }
inline void mm_out(Ref a, Ref b, Ref out) { mm_out_op()(a, b, out); }
inline Tensor addmm(Ref bias, Ref a, Ref b) { return addmm_op()(bias, a, b, 1, 1); }
inline Tensor t(Ref a) { return t_op()(a); }
inline Tensor view(Ref a, std::span<const int64_t> sizes) { return view_op()(a, ints(sizes)); }
inline Tensor view(Ref a, std::initializer_list<int64_t> sizes) { return view_op()(a, ints(sizes)); }
inline Tensor reshape(Ref a, std::initializer_list<int64_t> sizes) { return reshape_op()(a, ints(sizes)); }
inline Tensor reshape(Ref a, std::span<const int64_t> sizes) { return reshape_op()(a, ints(sizes)); }
inline Tensor transpose(Ref a, int d0, int d1) { return transpose_op()(a, d0, d1); }
inline Tensor permute(Ref a, std::initializer_list<int64_t> dims) { return permute_op()(a, ints(dims)); }
inline Tensor contiguous(Ref a) { return contiguous_op()(a, 0); }
inline Tensor narrow(Ref a, int dim, int64_t start, int64_t length) { return narrow_op()(a, dim, start, length); }
inline Tensor select(Ref a, int dim, int64_t index) { return select_op()(a, dim, index); }
// Sum over the first dimension of a matrix.
inline Tensor sum_rows(Ref a) { return sum_dim_op()(a, ints({0}), false, none()); }
inline Tensor sum(Ref a) { return sum_op()(a, none()); }
inline Tensor to(Ref a, uint32_t dtype) { return to_op()(a, dtype_value(dtype), false, false, none()); }
inline void copy_(Ref to, Ref from) { copy__op()(to, from, false); }
inline Tensor isfinite(Ref a) { return isfinite_op()(a); }
inline Tensor add(Ref a, double number) { return add_scalar_op()(a, number, 1); }
inline Tensor reciprocal(Ref a) { return reciprocal_op()(a); }
inline Tensor clamp_max(Ref a, double most) { return clamp_max_op()(a, most); }
}  // namespace ops

}  // namespace mortise
