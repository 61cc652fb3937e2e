// What the pairs of this plugin share. Each operator is one file; register.cpp lists them.
//
// Shapes as suffixes, here and in every file of the folder: N all leading dimensions as one, I in, O out, W width, V
// vocabulary.
#pragma once
#include "kernels/column_sum/column_sum_cuda.h"
#include "kernels/dropout/dropout.hpp"
#include "mortise/cpp/operator.hpp"

namespace mortise::aten {

const mortise_operator* embedding();
const mortise_operator* norm();
const mortise_operator* residual_norm();
const mortise_operator* dropout();
const mortise_operator* linear();
const mortise_operator* gated();
const mortise_operator* mlp();
const mortise_operator* rope();
const mortise_operator* self_attention();
const mortise_operator* embedding_norm();
const mortise_operator* head_loss();
const mortise_operator* loss();

// What a layer with this weight computes in.
inline uint32_t compute_dtype(const mortise_call* call, const mortise_param* weight) {
  return call->compute_dtype == MORTISE_NO_DTYPE ? info_of(weight).value_dtype : call->compute_dtype;
}
// What statistics, softmax and loss are computed in.
inline uint32_t statistics_dtype(uint32_t dtype) { return dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32; }
// A parameter to compute with; other plugins may have given it another dtype than this call computes in.
inline Tensor weight_in(mortise_param* p, uint32_t dtype) { return cast(use(p), dtype); }

// [leading dimensions, last] as a matrix, and back.
inline Tensor as_rows(Ref x) { return ops::reshape(x, {-1, Info(x).size(-1)}); }
inline Tensor as_leading(Ref x_NO, const Info& like) {
  std::vector<int64_t> sizes(like.shape().begin(), like.shape().end());
  sizes.back() = Info(x_NO).size(-1);
  return ops::view(x_NO, sizes);
}

// Of 16 bits on a GPU, whose products and sums are made in fp32: a gradient need not be rounded to 16 bits before it.
inline bool has_f32_sums(Ref x) {
  const Info i(x);
  return i.device == MORTISE_CUDA && (i.dtype == MORTISE_BF16 || i.dtype == MORTISE_F16);
}
// The gradient of a parameter as a product: straight into its buffer where it can be.
inline void product_gradient(mortise_param* p, Ref a, Ref b) {
  if (has_f32_sums(a))
    if (const GradientTarget to = gradient_target(p, MORTISE_F32); to.buffer)
      return ops::mm_f32_out(a, b, to.buffer, to.add);
  if (const Tensor out = gradient_buffer(p, Info(a).dtype)) return ops::mm_out(a, b, out);
  sum_gradient(p, ops::mm(a, b));
}
// The gradient of a bias: the sum over rows.
inline void rows_gradient(mortise_param* p, Ref g_NO) {
  if constexpr (MORTISE_HAS_CUDA)
    if (has_f32_sums(g_NO))
      if (const GradientTarget to = gradient_target(p, MORTISE_F32); to.buffer) {
        const Tensor rows = ops::contiguous(g_NO);
        const Info g(rows);
        const Tensor scratch = empty(MORTISE_F32, {kernels::column_sum_stretches(g.size(0), g.size(1)), g.size(1)});
        return kernels::check_launch(kernels::column_sum_cuda(g.dtype, g.data, g.size(0), g.size(1), to.add,
                                                              Info(to.buffer).as<float>(), Info(scratch).as<float>(),
                                                              stream_now()));
      }
  if (const Tensor out = gradient_buffer(p, info_of(p).grad_dtype)) return ops::sum_rows_out(g_NO, out);
  sum_gradient(p, ops::sum_rows(g_NO, info_of(p).grad_dtype));
}

inline bool drops(const mortise_call* call, double p) { return p > 0 && call->mode == MORTISE_TRAIN; }
// The share to drop, checked.
inline double dropout_of(const LayerSpec& spec, std::string_view key) {
  const double p = spec.number(key, 0);
  if (p < 0 || p > 1)
    throw Error(MORTISE_E_ARGUMENT, spec.path() + ": a dropout of " + std::to_string(p) + " is not between 0 and 1");
  return p;
}
// Not on a GPU whose kernel of dropout was not built.
inline Refusal dropout_supports(const mortise_place* place, std::string_view key) {
  if (kernels::dropout_runs_on(place->device) || place->mode != MORTISE_TRAIN || Attrs(place).number(key, 0) == 0)
    return {};
  return {"dropout of operators.aten was built for the CPU only", "dropout = 0"};
}

}  // namespace mortise::aten
