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
#define MORTISE_OP(name, schema)         \
  inline const Op& name() {              \
    static const Op op("aten::" schema); \
    return op;                           \
  }
MORTISE_OP(add_op, "add.Tensor")
MORTISE_OP(add__op, "add_.Tensor")
MORTISE_OP(sub_op, "sub.Tensor")
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
MORTISE_OP(clone_op, "clone")
MORTISE_OP(cat_op, "cat")
MORTISE_OP(bmm_op, "bmm")
MORTISE_OP(bmm_out_op, "bmm.out")
MORTISE_OP(baddbmm_op, "baddbmm")
MORTISE_OP(sum_out_op, "sum.IntList_out")
MORTISE_OP(mean_dim_op, "mean.dim")
MORTISE_OP(rsqrt_op, "rsqrt")
MORTISE_OP(add_scalar__op, "add_.Scalar")
MORTISE_OP(mul_scalar__op, "mul_.Scalar")
MORTISE_OP(fill__op, "fill_.Scalar")
MORTISE_OP(triu_op, "triu")
MORTISE_OP(unsqueeze_op, "unsqueeze")
MORTISE_OP(masked_fill_op, "masked_fill.Scalar")
MORTISE_OP(logical_not_op, "logical_not")
MORTISE_OP(arange_out_op, "arange.out")
MORTISE_OP(gelu_op, "gelu")
MORTISE_OP(gelu_backward_op, "gelu_backward")
MORTISE_OP(relu_op, "relu")
MORTISE_OP(threshold_backward_op, "threshold_backward")
MORTISE_OP(embedding_op, "embedding")
MORTISE_OP(embedding_dense_backward_op, "embedding_dense_backward")
MORTISE_OP(native_layer_norm_op, "native_layer_norm")
MORTISE_OP(native_layer_norm_backward_op, "native_layer_norm_backward")
MORTISE_OP(softmax_out_op, "_softmax.out")
MORTISE_OP(softmax_backward_data_out_op, "_softmax_backward_data.out")
MORTISE_OP(log_softmax_op, "_log_softmax")
MORTISE_OP(log_softmax_out_op, "_log_softmax.out")
MORTISE_OP(log_softmax_backward_data_out_op, "_log_softmax_backward_data.out")
MORTISE_OP(nll_loss_forward_op, "nll_loss_forward")
MORTISE_OP(nll_loss_backward_op, "nll_loss_backward")
MORTISE_OP(flash_attention_for_cpu_op, "_scaled_dot_product_flash_attention_for_cpu")
MORTISE_OP(flash_attention_for_cpu_backward_op, "_scaled_dot_product_flash_attention_for_cpu_backward")
MORTISE_OP(isfinite_op, "isfinite")
MORTISE_OP(add_scalar_op, "add.Scalar")
MORTISE_OP(reciprocal_op, "reciprocal")
MORTISE_OP(clamp_max_op, "clamp_max")
#undef MORTISE_OP

inline Tensor add(Ref a, Ref b) { return add_op()(a, b, 1); }
inline Tensor sub(Ref a, Ref b) { return sub_op()(a, b, 1); }
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
inline void add_(Ref a, Ref b) { add__op()(a, b, 1); }
inline void add_(Ref a, double b) { add_scalar__op()(a, b, 1); }
inline void mul_(Ref a, double b) { mul_scalar__op()(a, b); }
inline void fill_(Ref a, double b) { fill__op()(a, b); }
inline Tensor clone(Ref a) { return clone_op()(a, none()); }
inline Tensor cat(std::initializer_list<mortise_tensor*> list, int dim) { return cat_op()(tensors({list.begin(), list.size()}), dim); }
inline Tensor bmm(Ref a, Ref b) { return bmm_op()(a, b); }
inline void bmm_out(Ref a, Ref b, Ref out) { bmm_out_op()(a, b, out); }
inline Tensor baddbmm(Ref add, Ref a, Ref b) { return baddbmm_op()(add, a, b, 1, 1); }
// The same into a tensor, summed in its dtype.
inline void sum_rows_out(Ref a, Ref out) { sum_out_op()(a, ints({0}), false, dtype_value(Info(out).dtype), out); }
inline Tensor mean_last(Ref a) { return mean_dim_op()(a, ints({-1}), true, none()); }
inline Tensor rsqrt(Ref a) { return rsqrt_op()(a); }
// Above the diagonal; the rest is 0.
inline Tensor triu(Ref a, int diagonal) { return triu_op()(a, diagonal); }
inline Tensor unsqueeze(Ref a, int dim) { return unsqueeze_op()(a, dim); }
inline Tensor masked_fill(Ref a, Ref mask, double f) { return masked_fill_op()(a, mask, f); }
inline Tensor logical_not(Ref a) { return logical_not_op()(a); }
// 0 1 2 … into a tensor of int64.
inline void arange_out(int64_t end, Ref out) { arange_out_op()(end, out); }
// `approximate`: "none" or "tanh".
inline Tensor gelu(Ref x, std::string_view approximate) { return gelu_op()(x, approximate); }
inline Tensor gelu_backward(Ref g, Ref x, std::string_view approximate) { return gelu_backward_op()(g, x, approximate); }
inline Tensor relu(Ref x) { return relu_op()(x); }
inline Tensor relu_backward(Ref g, Ref y) { return threshold_backward_op()(g, y, 0); }
inline Tensor embedding(Ref weight, Ref ids) { return embedding_op()(weight, ids, -1, false, false); }
inline Tensor embedding_backward(Ref g, Ref ids, int64_t rows) { return embedding_dense_backward_op()(g, ids, rows, -1, false); }
// y, mean, 1 / deviation.
inline std::array<Tensor, 3> layer_norm(Ref x, int64_t width, Ref weight, Ref bias, double eps) {
  return native_layer_norm_op().many<3>(x, ints({width}), weight, bias, eps);
}
// Gradients of x, weight, bias; those not in `mask` are empty.
inline std::array<Tensor, 3> layer_norm_backward(Ref g, Ref x, int64_t width, Ref mean, Ref rstd, Ref weight, Ref bias, std::array<int64_t, 3> mask) {
  return native_layer_norm_backward_op().many<3>(g, x, ints({width}), mean, rstd, weight, bias, ints(mask));
}
// Over the last dimension; `out` may be x.
inline void softmax_out(Ref x, Ref out) { softmax_out_op()(x, -1, false, out); }
// `out` may be g.
inline void softmax_backward_out(Ref g, Ref y, Ref out) { softmax_backward_data_out_op()(g, y, -1, dtype_value(Info(y).dtype), out); }
inline Tensor log_softmax(Ref x) { return log_softmax_op()(x, -1, false); }
inline void log_softmax_out(Ref x, Ref out) { log_softmax_out_op()(x, -1, false, out); }
inline void log_softmax_backward_out(Ref g, Ref y, Ref out) { log_softmax_backward_data_out_op()(g, y, -1, dtype_value(Info(y).dtype), out); }
// The sum over rows whose label is not -100, and how many they are.
inline std::array<Tensor, 2> nll_loss_sum(Ref log_p, Ref labels) { return nll_loss_forward_op().many<2>(log_p, labels, none(), 2, -100); }
inline Tensor nll_loss_sum_backward(Ref g, Ref log_p, Ref labels, Ref count) {
  return nll_loss_backward_op()(g, log_p, labels, none(), 2, -100, count);
}
inline Tensor isfinite(Ref a) { return isfinite_op()(a); }
inline Tensor add(Ref a, double number) { return add_scalar_op()(a, number, 1); }
inline Tensor reciprocal(Ref a) { return reciprocal_op()(a); }
inline Tensor clamp_max(Ref a, double most) { return clamp_max_op()(a, most); }
// Queries, keys, values [B, H, T, D] of any strides → y, log-sum-exp; without dropout and mask.
inline std::array<Tensor, 2> flash_attention_for_cpu(Ref q, Ref k, Ref v, bool causal) {
  return flash_attention_for_cpu_op().many<2>(q, k, v, 0.0, causal, none(), none());
}
inline std::array<Tensor, 3> flash_attention_for_cpu_backward(Ref g, Ref q, Ref k, Ref v, Ref y, Ref log_sum, bool causal) {
  return flash_attention_for_cpu_backward_op().many<3>(g, q, k, v, y, log_sum, 0.0, causal, none(), none());
}
}  // namespace ops

}  // namespace mortise
