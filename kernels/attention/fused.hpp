// Attention by one operator of ATen that keeps no array of scores: what attention.flash, .efficient and .cudnn share.
// Each says which operator that is, where it runs and what it cannot serve.
//
// Shapes  as in attention.hpp.
#pragma once
#include <cstdio>

#include "kernels/attention/attention.hpp"

namespace mortise::kernels {

// What the layer at a place asks for, and how a kernel says that it cannot.
struct FusedPlace {
  explicit FusedPlace(const mortise_place* p) : place(p), attrs(p) {}
  const mortise_place* place;
  Attrs attrs;
  bool is_half() const { return place->compute_dtype == MORTISE_F16 || place->compute_dtype == MORTISE_BF16; }
  // Whatever hides keys beside the order of positions.
  bool has_mask() const { return attrs.text("mask", "none") != "none" || attrs.integer("window", 0) > 0; }
  bool is_grouped() const { return attrs.integer("kv_heads", attrs.integer("heads", 1)) != attrs.integer("heads", 1); }

  int64_t head_dim() const { return attrs.integer("head_dim", 0); }

  // What none of them serves.
  Refusal common() const {
    const double p = attrs.number("dropout", 0);
    if (attrs.flag("bias", false)) return no("it takes no bias");
    if (p == 0 || place->mode != MORTISE_TRAIN) return {};
    char why[64];
    std::snprintf(why, sizeof why, "dropout %g in training", p);
    return no(why);
  }
  static Refusal no(std::string why) {
    return {std::move(why), "[attention.math], or let it choose: [attention.auto]"};
  }
};

// `Kernel` has
//   supports(FusedPlace) → Refusal
//   forward(heads, added, causal, scale)             → result [B, H, T, D], and up to three tensors to keep
//   backward(g, heads, y, kept, added, causal, scale) → gradients of q, k and v
template <class Kernel>
class FusedAttention : AttentionLayer {
 public:
  using AttentionLayer::Heads;
  FusedAttention(const Builder&, const LayerSpec& spec) : AttentionLayer(spec) {}

  static Refusal supports(const mortise_place* place) {
    const FusedPlace asked(place);
    const Refusal refusal = Kernel::supports(asked);
    return refusal.why.empty() ? asked.common() : refusal;
  }

  // Saved, after the arguments: the result and what the kernel keeps.
  void forward(mortise_call* call, Saves& saves) const {
    const Heads x = heads_of_call(call, saves);
    if (bias_argument(call))
      throw Error(MORTISE_E_UNSUPPORTED,
                  "this attention takes no bias, and the layer was declared without one: its "
                  "attribute `bias`",
                  "[attention.math]");
    auto [y_BHTD, a, b, c] = Kernel::forward(x, added(mask_argument(call), x), by_kernel(x), scale());
    give(call, 0, merge(y_BHTD));
    saves.output(0);
    for (Tensor* kept : {&a, &b, &c}) saves.own(std::move(*kept));
  }

  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0)) return;
    const Heads x = heads_of_saved(b);
    auto [dq, dk, dv] =
        Kernel::backward(split(cast(b.grad(0), Info(x.q).dtype), heads()), x, split(b.saved(5), heads()),
                         {Tensor::share(b.saved(6)), Tensor::share(b.saved(7)), Tensor::share(b.saved(8))},
                         added(saved_mask(b), x), by_kernel(x), scale());
    give_gradients(b, {std::move(dq), std::move(dk), std::move(dv)});
  }

 private:
  // The kernels' own causal mask has the first query where the first key is.
  bool by_kernel(const Heads& x) const { return causal() && Info(x.q).size(2) == Info(x.k).size(2); }

  Tensor added(Ref mask, const Heads& x) const {
    const bool later_keys = causal() && !by_kernel(x) && Info(x.q).size(2) > 1;  // one query is the last one
    return added_to_scores(mask, x, later_keys);
  }
};

// `added` in the type of the queries, for [B, H, T, S], each row at a multiple of 16 bytes, as kernels of CUDA want it.
inline Tensor added_for_cuda(const Tensor& added, const AttentionLayer::Heads& x) {
  if (!added) return {};
  const Info q(x.q), k(x.k), m(added);
  const int64_t S = k.size(2), row = (S + 15) / 16 * 16;
  // The lowest number of fp32 would become an infinity.
  const double lowest = q.dtype == MORTISE_F16    ? -65504.0
                        : q.dtype == MORTISE_BF16 ? -3.3895313892515355e38
                                                  : -3.4028234663852886e38;
  const Tensor narrow = ops::to(ops::clamp_min(added, lowest), q.dtype);
  std::vector<int64_t> sizes(m.shape().begin(), m.shape().end());
  sizes.back() = row;
  const Tensor rows = empty(q.dtype, sizes);
  const Tensor there = ops::narrow(rows, static_cast<int>(sizes.size()) - 1, 0, S);
  ops::copy_(there, narrow);
  return ops::expand(there, {q.size(0), q.size(1), q.size(2), S});
}

}  // namespace mortise::kernels
