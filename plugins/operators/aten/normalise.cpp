#include "normalise.hpp"

namespace mortise::aten {

Normalise::Normalise(const Builder& build, const LayerSpec& spec)
    : width_(spec.integer("width")), eps_(spec.number("eps", 1e-5)),
      weight_(build.param({spec.name() + ".weight", "norm", {"width"}, {width_}, "constant", 1})) {
  if (spec.choice("kind", {"layer", "rms"}) == 0)
    bias_ = build.param({spec.name() + ".bias", "norm", {"width"}, {width_}, "constant", 0});
}

Tensor Normalise::forward(mortise_call* call, Ref x, Saves& saves) const {
  const uint32_t dtype = statistics_dtype(Info(x).dtype);
  const Tensor y = bias_ ? layer_norm(x, dtype, saves) : rms_norm(x, dtype, saves);
  return cast(y, compute_dtype(call, weight_));
}

Tensor Normalise::backward(Backward& b, Ref g, Ref x, uint32_t at, bool wanted) const {
  return bias_ ? layer_norm_backward(b, g, x, at, wanted) : rms_norm_backward(b, g, x, at, wanted);
}

// A bf16 x with fp32 weights is ATen's mixed form on the host's processor: the statistics are fp32. On a GPU ATen wants
// one type.
static Tensor as_statistics(Ref x) {
  return Info(x).device == MORTISE_CPU ? Tensor::share(x) : cast(x, statistics_dtype(Info(x).dtype));
}

Tensor Normalise::layer_norm(Ref x, uint32_t dtype, Saves& saves) const {
  auto [y, mean, rstd] =
      ops::layer_norm(as_statistics(x), width_, weight_in(weight_, dtype), weight_in(bias_, dtype), eps_);
  saves.own(std::move(mean));
  saves.own(std::move(rstd));
  return y;
}

Tensor Normalise::layer_norm_backward(Backward& b, Ref g, Ref x, uint32_t at, bool wanted) const {
  const uint32_t x_dtype = Info(x).dtype, dtype = statistics_dtype(x_dtype);
  const Tensor of_x = as_statistics(x);
  auto [dx, dw, db] = ops::layer_norm_backward(cast(g, Info(of_x).dtype), of_x, width_, b.saved(at), b.saved(at + 1),
                                               weight_in(weight_, dtype), weight_in(bias_, dtype),
                                               {wanted, trainable(weight_), trainable(bias_)});
  if (trainable(weight_)) sum_gradient(weight_, dw);
  if (trainable(bias_)) sum_gradient(bias_, db);
  return dx ? cast(dx, x_dtype) : Tensor();
}

// y = x · r · w with r = 1 / sqrt(mean(x²) + eps). Source: Zhang & Sennrich 2019, arXiv:1910.07467.
Tensor Normalise::rms_norm(Ref x, uint32_t dtype, Saves& saves) const {
  const Tensor wide = cast(x, dtype);
  const Tensor square = ops::mean_last(ops::mul(wide, wide));
  ops::add_(square, eps_);
  const Tensor r = ops::rsqrt(square);
  const Tensor normal = ops::mul(wide, r);
  saves.own(r);
  saves.own(Tensor());
  return ops::mul(normal, weight_in(weight_, dtype));
}

// With n = x · r:  dx = r · (g·w − n · mean(g·w · n)),  dw = Σ g · n.
Tensor Normalise::rms_norm_backward(Backward& b, Ref g_, Ref x, uint32_t at, bool wanted) const {
  const uint32_t dtype = statistics_dtype(Info(x).dtype);
  const Ref r = b.saved(at);
  const Tensor g = cast(g_, dtype);
  const Tensor normal = ops::mul(cast(x, dtype), r);
  if (trainable(weight_)) sum_gradient(weight_, ops::sum_rows(as_rows(ops::mul(g, normal))));
  if (!wanted) return {};
  const Tensor gw = ops::mul(g, weight_in(weight_, dtype));
  const Tensor along = ops::mul(normal, ops::mean_last(ops::mul(gw, normal)));
  return ops::mul(ops::sub(gw, along), r);
}

}  // namespace mortise::aten
