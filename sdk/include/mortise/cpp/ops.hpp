// Typed LibTorch operators, each looked up once in a library. Those that plugins of Mortise's tree use; for another,
// inside a function: static const Op op("aten::cosh"); then op(x).
#pragma once
#include <vector>

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
  // A list of so many tensors.
  template <class... Args>
  std::vector<Tensor> list(size_t length, const Args&... args) const {
    const mortise_value v[] = {value(args)...};
    std::vector<mortise_value> r(length);
    uint32_t n = 0;
    check(api.ops->call(api.host, op_, v, sizeof...(Args), r.data(), static_cast<uint32_t>(length), &n));
    std::vector<Tensor> out;
    for (mortise_value& result : r) out.push_back(take(result));
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
MORTISE_OP(op_add, "add.Tensor")
MORTISE_OP(op_add_, "add_.Tensor")
MORTISE_OP(op_sub, "sub.Tensor")
MORTISE_OP(op_mul, "mul.Tensor")
MORTISE_OP(op_mul_scalar, "mul.Scalar")
MORTISE_OP(op_div, "div.Tensor")
MORTISE_OP(op_mm, "mm")
MORTISE_OP(op_mm_out, "mm.out")
MORTISE_OP(op_mm_dtype_out, "mm.dtype_out")
MORTISE_OP(op_addmm_dtype_out, "addmm.dtype_out")
MORTISE_OP(op_addmm, "addmm")
MORTISE_OP(op_t, "t")
MORTISE_OP(op_view, "view")
MORTISE_OP(op_reshape, "reshape")
MORTISE_OP(op_transpose, "transpose.int")
MORTISE_OP(op_permute, "permute")
MORTISE_OP(op_contiguous, "contiguous")
MORTISE_OP(op_narrow, "narrow")
MORTISE_OP(op_select, "select.int")
MORTISE_OP(op_split, "split_with_sizes")
MORTISE_OP(op_index_select, "index_select")
MORTISE_OP(op_sum_dim, "sum.dim_IntList")
MORTISE_OP(op_sum, "sum")
MORTISE_OP(op_to, "to.dtype")
MORTISE_OP(op_copy_, "copy_")
MORTISE_OP(op_clone, "clone")
MORTISE_OP(op_cat, "cat")
MORTISE_OP(op_bmm, "bmm")
MORTISE_OP(op_bmm_out, "bmm.out")
MORTISE_OP(op_baddbmm, "baddbmm")
MORTISE_OP(op_sum_out, "sum.IntList_out")
MORTISE_OP(op_mean_dim, "mean.dim")
MORTISE_OP(op_rsqrt, "rsqrt")
MORTISE_OP(op_add_scalar_, "add_.Scalar")
MORTISE_OP(op_mul_scalar_, "mul_.Scalar")
MORTISE_OP(op_fill_, "fill_.Scalar")
MORTISE_OP(op_triu, "triu")
MORTISE_OP(op_unsqueeze, "unsqueeze")
MORTISE_OP(op_masked_fill, "masked_fill.Scalar")
MORTISE_OP(op_logical_not, "logical_not")
MORTISE_OP(op_logical_or, "logical_or")
MORTISE_OP(op_ne, "ne.Tensor")
MORTISE_OP(op_ne_scalar, "ne.Scalar")
MORTISE_OP(op_expand, "expand")
MORTISE_OP(op_sum_to_size, "sum_to_size")
MORTISE_OP(op_cos, "cos")
MORTISE_OP(op_sin, "sin")
MORTISE_OP(op_pow_scalar, "pow.Scalar")
MORTISE_OP(op_silu, "silu")
MORTISE_OP(op_silu_backward, "silu_backward")
MORTISE_OP(op_tanh, "tanh")
MORTISE_OP(op_tanh_backward, "tanh_backward")
MORTISE_OP(op_arange_out, "arange.out")
MORTISE_OP(op_gelu, "gelu")
MORTISE_OP(op_gelu_backward, "gelu_backward")
MORTISE_OP(op_relu, "relu")
MORTISE_OP(op_threshold_backward, "threshold_backward")
MORTISE_OP(op_embedding, "embedding")
MORTISE_OP(op_embedding_dense_backward, "embedding_dense_backward")
MORTISE_OP(op_native_layer_norm, "native_layer_norm")
MORTISE_OP(op_native_layer_norm_backward, "native_layer_norm_backward")
MORTISE_OP(op_softmax_out, "_softmax.out")
MORTISE_OP(op_softmax_backward_data_out, "_softmax_backward_data.out")
MORTISE_OP(op_log_softmax, "_log_softmax")
MORTISE_OP(op_log_softmax_out, "_log_softmax.out")
MORTISE_OP(op_log_softmax_backward_data_out, "_log_softmax_backward_data.out")
MORTISE_OP(op_nll_loss_forward, "nll_loss_forward")
MORTISE_OP(op_nll_loss_backward, "nll_loss_backward")
MORTISE_OP(op_flash_attention_for_cpu, "_scaled_dot_product_flash_attention_for_cpu")
MORTISE_OP(op_flash_attention_for_cpu_backward, "_scaled_dot_product_flash_attention_for_cpu_backward")
MORTISE_OP(op_isfinite, "isfinite")
MORTISE_OP(op_add_scalar, "add.Scalar")
MORTISE_OP(op_reciprocal, "reciprocal")
MORTISE_OP(op_clamp_max, "clamp_max")
MORTISE_OP(op_clamp_min, "clamp_min")
MORTISE_OP(op_lerp, "lerp.Scalar")
MORTISE_OP(op_where, "where.self")
MORTISE_OP(op_vector_norm, "linalg_vector_norm")
#undef MORTISE_OP

inline Tensor add(Ref a, Ref b) { return op_add()(a, b, 1); }
inline Tensor sub(Ref a, Ref b) { return op_sub()(a, b, 1); }
inline Tensor mul(Ref a, Ref b) { return op_mul()(a, b); }
inline Tensor mul(Ref a, double f) { return op_mul_scalar()(a, f); }
inline Tensor div(Ref a, Ref b) { return op_div()(a, b); }
inline Tensor mm(Ref a, Ref b) { return op_mm()(a, b); }
inline void mm_out(Ref a, Ref b, Ref out) { op_mm_out()(a, b, out); }
// The product of 16-bit matrices as the sums in fp32 that it was, on a GPU; `add`: to what is in `out`.
inline void mm_f32_out(Ref a, Ref b, Ref out, bool add) {
  if (add) op_addmm_dtype_out()(out, a, b, dtype_value(MORTISE_F32), 1, 1, out);
  else op_mm_dtype_out()(a, b, dtype_value(MORTISE_F32), out);
}
inline Tensor addmm(Ref bias, Ref a, Ref b) { return op_addmm()(bias, a, b, 1, 1); }
// beta · add + alpha · a · b.
inline Tensor addmm(Ref add, Ref a, Ref b, double beta, double alpha) { return op_addmm()(add, a, b, beta, alpha); }
inline Tensor t(Ref a) { return op_t()(a); }
inline Tensor view(Ref a, std::span<const int64_t> sizes) { return op_view()(a, ints(sizes)); }
inline Tensor view(Ref a, std::initializer_list<int64_t> sizes) { return op_view()(a, ints(sizes)); }
inline Tensor reshape(Ref a, std::initializer_list<int64_t> sizes) { return op_reshape()(a, ints(sizes)); }
inline Tensor reshape(Ref a, std::span<const int64_t> sizes) { return op_reshape()(a, ints(sizes)); }
inline Tensor transpose(Ref a, int d0, int d1) { return op_transpose()(a, d0, d1); }
inline Tensor permute(Ref a, std::initializer_list<int64_t> dims) { return op_permute()(a, ints(dims)); }
inline Tensor contiguous(Ref a) { return op_contiguous()(a, 0); }
inline Tensor narrow(Ref a, int dim, int64_t start, int64_t length) { return op_narrow()(a, dim, start, length); }
// Rows of `a`, [n, …], those of these numbers.
inline Tensor index_select(Ref a, Ref rows) { return op_index_select()(a, 0, rows); }
inline Tensor select(Ref a, int dim, int64_t index) { return op_select()(a, dim, index); }
// Its rows in parts of these sizes, as views; their gradients are put side by side once, of `narrow` added up whole.
inline std::vector<Tensor> split(Ref a, std::span<const int64_t> sizes) {
  return op_split().list(sizes.size(), a, ints(sizes), 0);
}
// Sum over the first dimension of a matrix.
// Added up in this type, or in that of `a`.
inline Tensor sum_rows(Ref a, uint32_t dtype = MORTISE_NO_DTYPE) {
  return op_sum_dim()(a, ints({0}), false, dtype == MORTISE_NO_DTYPE ? none() : dtype_value(dtype));
}
inline Tensor sum_over(Ref a, int dim) { return op_sum_dim()(a, ints({dim}), false, none()); }
inline Tensor sum(Ref a) { return op_sum()(a, none()); }
inline Tensor to(Ref a, uint32_t dtype) { return op_to()(a, dtype_value(dtype), false, false, none()); }
inline void copy_(Ref to, Ref from) { op_copy_()(to, from, false); }
inline void add_(Ref a, Ref b) { op_add_()(a, b, 1); }
inline void add_(Ref a, double b) { op_add_scalar_()(a, b, 1); }
inline void mul_(Ref a, double b) { op_mul_scalar_()(a, b); }
inline void fill_(Ref a, double b) { op_fill_()(a, b); }
inline Tensor clone(Ref a) { return op_clone()(a, none()); }
inline Tensor cat(std::span<mortise_tensor* const> list, int dim) { return op_cat()(tensors(list), dim); }
inline Tensor cat(std::initializer_list<mortise_tensor*> list, int dim) {
  return cat(std::span(list.begin(), list.size()), dim);
}
inline Tensor bmm(Ref a, Ref b) { return op_bmm()(a, b); }
inline void bmm_out(Ref a, Ref b, Ref out) { op_bmm_out()(a, b, out); }
inline Tensor baddbmm(Ref add, Ref a, Ref b) { return op_baddbmm()(add, a, b, 1, 1); }
// The same into a tensor, summed in its dtype.
inline void sum_rows_out(Ref a, Ref out) { op_sum_out()(a, ints({0}), false, dtype_value(Info(out).dtype), out); }
inline Tensor mean_last(Ref a) { return op_mean_dim()(a, ints({-1}), true, none()); }
inline Tensor rsqrt(Ref a) { return op_rsqrt()(a); }
// Above the diagonal; the rest is 0.
inline Tensor triu(Ref a, int diagonal) { return op_triu()(a, diagonal); }
inline Tensor unsqueeze(Ref a, int dim) { return op_unsqueeze()(a, dim); }
inline Tensor masked_fill(Ref a, Ref mask, double f) { return op_masked_fill()(a, mask, f); }
inline Tensor logical_not(Ref a) { return op_logical_not()(a); }
inline Tensor logical_or(Ref a, Ref b) { return op_logical_or()(a, b); }
inline Tensor ne(Ref a, Ref b) { return op_ne()(a, b); }
inline Tensor ne(Ref a, int64_t number) { return op_ne_scalar()(a, number); }
// A view in which sizes of 1 are repeated.
inline Tensor expand(Ref a, std::initializer_list<int64_t> sizes) { return op_expand()(a, ints(sizes), false); }
// Summed over what `sizes` were expanded to.
inline Tensor sum_to_size(Ref a, std::span<const int64_t> sizes) { return op_sum_to_size()(a, ints(sizes)); }
inline Tensor cos(Ref a) { return op_cos()(a); }
inline Tensor sin(Ref a) { return op_sin()(a); }
// base to the power of each element.
inline Tensor pow(double base, Ref exponents) { return op_pow_scalar()(base, exponents); }
// 0 1 2 … into a tensor of int64.
inline void arange_out(int64_t end, Ref out) { op_arange_out()(end, out); }
// `approximate`: "none" or "tanh".
inline Tensor gelu(Ref x, std::string_view approximate) { return op_gelu()(x, approximate); }
inline Tensor gelu_backward(Ref g, Ref x, std::string_view approximate) {
  return op_gelu_backward()(g, x, approximate);
}
inline Tensor relu(Ref x) { return op_relu()(x); }
inline Tensor relu_backward(Ref g, Ref y) { return op_threshold_backward()(g, y, 0); }
inline Tensor silu(Ref x) { return op_silu()(x); }
inline Tensor silu_backward(Ref g, Ref x) { return op_silu_backward()(g, x); }
inline Tensor tanh(Ref x) { return op_tanh()(x); }
inline Tensor tanh_backward(Ref g, Ref y) { return op_tanh_backward()(g, y); }
inline Tensor embedding(Ref weight, Ref ids) { return op_embedding()(weight, ids, -1, false, false); }
inline Tensor embedding_backward(Ref g, Ref ids, int64_t rows) {
  return op_embedding_dense_backward()(g, ids, rows, -1, false);
}
// y, mean, 1 / deviation.
inline std::array<Tensor, 3> layer_norm(Ref x, int64_t width, Ref weight, Ref bias, double eps) {
  return op_native_layer_norm().many<3>(x, ints({width}), weight, bias, eps);
}
// Gradients of x, weight, bias; those not in `mask` are empty.
inline std::array<Tensor, 3> layer_norm_backward(Ref g, Ref x, int64_t width, Ref mean, Ref rstd, Ref weight, Ref bias,
                                                 std::array<int64_t, 3> mask) {
  return op_native_layer_norm_backward().many<3>(g, x, ints({width}), mean, rstd, weight, bias, ints(mask));
}
// Over the last dimension; `out` may be x.
inline void softmax_out(Ref x, Ref out) { op_softmax_out()(x, -1, false, out); }
// `out` may be g.
inline void softmax_backward_out(Ref g, Ref y, Ref out) {
  op_softmax_backward_data_out()(g, y, -1, dtype_value(Info(y).dtype), out);
}
inline Tensor log_softmax(Ref x) { return op_log_softmax()(x, -1, false); }
inline void log_softmax_out(Ref x, Ref out) { op_log_softmax_out()(x, -1, false, out); }
inline void log_softmax_backward_out(Ref g, Ref y, Ref out) {
  op_log_softmax_backward_data_out()(g, y, -1, dtype_value(Info(y).dtype), out);
}
// The sum over rows whose label is not -100, and how many they are.
inline std::array<Tensor, 2> nll_loss_sum(Ref log_p, Ref labels) {
  return op_nll_loss_forward().many<2>(log_p, labels, none(), 2, -100);
}
inline Tensor nll_loss_sum_backward(Ref g, Ref log_p, Ref labels, Ref count) {
  return op_nll_loss_backward()(g, log_p, labels, none(), 2, -100, count);
}
inline Tensor isfinite(Ref a) { return op_isfinite()(a); }
inline Tensor add(Ref a, double number) { return op_add_scalar()(a, number, 1); }
inline Tensor reciprocal(Ref a) { return op_reciprocal()(a); }
inline Tensor clamp_max(Ref a, double most) { return op_clamp_max()(a, most); }
inline Tensor clamp_min(Ref a, double least) { return op_clamp_min()(a, least); }
// a + weight · (b - a).
inline Tensor lerp(Ref a, Ref b, double weight) { return op_lerp()(a, b, weight); }
// Of `a` where `mask` is true, else of `b`.
inline Tensor where(Ref mask, Ref a, Ref b) { return op_where()(mask, a, b); }
// The root of the sum of all squares.
inline Tensor norm(Ref a) { return op_vector_norm()(a, 2, none(), false, none()); }
// Queries [B, H, T, D], keys and values [B, K, S, D] of any strides → y, log-sum-exp; `mask` is added to the scores, or
// empty.
inline std::array<Tensor, 2> flash_attention_for_cpu(Ref q, Ref k, Ref v, bool causal, Ref mask, double scale) {
  return op_flash_attention_for_cpu().many<2>(q, k, v, 0.0, causal, mask, scale);
}
inline std::array<Tensor, 3> flash_attention_for_cpu_backward(Ref g, Ref q, Ref k, Ref v, Ref y, Ref log_sum,
                                                              bool causal, Ref mask, double scale) {
  return op_flash_attention_for_cpu_backward().many<3>(g, q, k, v, y, log_sum, 0.0, causal, mask, scale);
}
}  // namespace ops

}  // namespace mortise
