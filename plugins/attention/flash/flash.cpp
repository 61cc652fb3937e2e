// attention.flash: ATen's flash attention for the CPU. Scores never exist as a whole; their log-sum-exp is what is
// kept.
//
// Shapes  B batch, T positions, H heads, D head's width.
#include <cstdio>

#include "mortise/cpp/operator.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

class Flash {
 public:
  Flash(const Builder&, const LayerSpec& spec)
      : heads_(spec.integer("heads")), head_dim_(spec.integer("head_dim")), causal_(spec.flag("causal", false)) {}

  static Refusal supports(const mortise_place* place) {
    const double p = Attrs(place).number("dropout", 0);
    const std::string mask(Attrs(place).text("mask", "none"));
    if (place->device != MORTISE_CPU) return {"attention.flash is a kernel of the CPU", "[attention.math]"};
    if (mask != "none")
      return {"it takes no mask (" + mask + ")", "[attention.math], or let it choose: [attention.auto]"};
    if (p == 0 || place->mode != MORTISE_TRAIN) return {};
    char why[64];
    std::snprintf(why, sizeof why, "dropout %g in training", p);
    return {why, "[attention.math], or let it choose: [attention.auto]"};
  }

  // Saved: qkv, the result, the log-sum-exp.
  void forward(mortise_call* call, Saves& saves) const {
    if (call->n_args > 1 && call->args[1].tag == MORTISE_TENSOR)
      throw Error(MORTISE_E_UNSUPPORTED,
                  "attention.flash takes no mask, and the model announced none: its attribute `mask` is not \"keys\"\n"
                  "  fix: [attention.math]");
    const Tensor qkv = cast(call->args[0], call->compute_dtype);
    const Info like(qkv);
    if (like.rank != 3 || like.size(-1) != 3 * heads_ * head_dim_)
      throw Error(MORTISE_E_SHAPE,
                  "attention takes queries, keys and values packed as [batch, positions, 3 * heads * head_dim]");
    const auto [q, k, v] = heads_of(qkv);
    auto [y_BHTD, log_sum] = ops::flash_attention_for_cpu(q, k, v, causal_);
    give(call, 0, ops::reshape(ops::transpose(y_BHTD, 1, 2), {like.size(0), like.size(1), heads_ * head_dim_}));
    saves.input(0, qkv);
    saves.output(0);
    saves.own(std::move(log_sum));
  }

  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0) || !b.wants(0)) return;
    const Info like(b.saved(0));
    const auto [q, k, v] = heads_of(b.saved(0));
    const auto d = ops::flash_attention_for_cpu_backward(as_heads(cast(b.grad(0), like.dtype)), q, k, v,
                                                         as_heads(b.saved(1)), b.saved(2), causal_);
    // Three [B, T, H, D] side by side are qkv's own layout.
    const Tensor dq = ops::transpose(d[0], 1, 2), dk = ops::transpose(d[1], 1, 2), dv = ops::transpose(d[2], 1, 2);
    b.give(0, ops::view(ops::cat({dq.get(), dk.get(), dv.get()}, 2), like.shape()));
  }

 private:
  // [B, T, H·D] as [B, H, T, D]: a view.
  Tensor as_heads(Ref x) const {
    return ops::transpose(ops::reshape(x, {Info(x).size(0), Info(x).size(1), heads_, head_dim_}), 1, 2);
  }
  std::array<Tensor, 3> heads_of(Ref qkv) const {
    const int64_t width = heads_ * head_dim_;
    return {as_heads(ops::narrow(qkv, 2, 0, width)), as_heads(ops::narrow(qkv, 2, width, width)),
            as_heads(ops::narrow(qkv, 2, 2 * width, width))};
  }

  int64_t heads_, head_dim_;
  bool causal_;
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers, mortise::provide("attention", mortise::operator_of<mortise::Flash>()))
