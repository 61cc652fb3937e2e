// attention.math: softmax(q·kᵀ · scale + mask + bias)·v, every step by hand, the probabilities kept for backward.
//
// Shapes  B batch, T queries, S keys, H heads, D head's width; P = B·H, one pair of a sample and a head. Heads of keys
//         and values that serve several of queries are repeated.
// Dtypes  products in the compute dtype; scores, softmax and its gradient in fp32 (fp64 of fp64).
// Memory  P·T·S numbers are saved; with dropout the dropped copy of them is made again in backward.
#include <limits>

#include "kernels/attention/attention.hpp"
#include "kernels/dropout/dropout.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

class Math : kernels::AttentionLayer {
 public:
  Math(const Builder&, const LayerSpec& spec) : AttentionLayer(spec) {}

  static Refusal supports(const mortise_place* place) {
    if (kernels::dropout_runs_on(place->device) || place->mode != MORTISE_TRAIN ||
        Attrs(place).number("dropout", 0) == 0)
      return {};
    return {"dropout of attention.math was built for the CPU only", "dropout = 0"};
  }

  void forward(mortise_call* call, Saves& saves) const {
    const Heads views = heads_of_call(call, saves);
    const Rows x = rows_of(views);
    Tensor p_PTS = scores(x, views);
    if (const Tensor added = added_to_scores(mask_argument(call), views, false)) add(p_PTS, added, views);
    if (const Tensor bias = bias_argument(call)) add(p_PTS, bias, views);
    ops::softmax_out(p_PTS, p_PTS);
    give(call, 0, merge(as_heads(ops::bmm(dropped(call, p_PTS, Info(x.q).dtype), x.v), Info(views.q).size(0))));
    saves.own(std::move(p_PTS));
  }

  void backward(mortise_call* call, Backward& b) const {
    if (!b.grad(0)) return;
    const Heads views = heads_of_saved(b);
    const Rows x = rows_of(views);
    const Ref p_PTS = b.saved(5);
    const int64_t B = Info(views.q).size(0);
    const uint32_t dtype = Info(x.q).dtype;
    const Tensor g_PTD = flat(split(cast(b.grad(0), dtype), heads()));

    const Tensor dv = ops::bmm(turned(dropped(call, p_PTS, dtype)), g_PTD);
    Tensor d_PTS = cast(ops::bmm(g_PTD, turned(x.v)), Info(p_PTS).dtype);
    if (drops(call)) d_PTS = kernels::dropout(d_PTS, nullptr, random_site(call), dropout(), Info(p_PTS).dtype);
    ops::softmax_backward_out(d_PTS, p_PTS, d_PTS);
    if (b.wants(4)) b.give(4, bias_gradient(d_PTS, saved_bias(b), views));
    d_PTS = cast(d_PTS, dtype);
    const Tensor dq = ops::bmm(d_PTS, x.k);
    ops::mul_(dq, scale());
    const Tensor dk = turned(ops::bmm(turned(x.q), d_PTS));  // the way round that autograd has it, for its bits
    give_gradients(b, {as_heads(dq, B), shared(as_heads(dk, B)), shared(as_heads(dv, B))});
  }

 private:
  struct Rows {
    Tensor q, k, v;  // [P, T, D], q scaled; [P, S, D]; [P, S, D]
  };
  bool drops(const mortise_call* call) const { return dropout() > 0 && call->mode == MORTISE_TRAIN; }
  Tensor as_heads(Ref x_PTD, int64_t B) const {
    return ops::reshape(x_PTD, {B, heads(), Info(x_PTD).size(1), head_dim()});
  }
  Rows rows_of(const Heads& h) const {
    return {ops::mul(flat(h.q), scale()), flat(repeated(h.k)), flat(repeated(h.v))};
  }

  // In fp32 or wider. Positions after one's own count as minus infinity.
  Tensor scores(const Rows& x, const Heads& views) const {
    const uint32_t dtype = Info(x.q).dtype, wide = dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32;
    if (!causal()) return cast(ops::bmm(x.q, turned(x.k)), wide);
    const int64_t T = Info(views.q).size(2), S = Info(views.k).size(2);
    const Tensor later_TS = empty(dtype, {T, S});
    ops::fill_(later_TS, -std::numeric_limits<double>::infinity());
    return cast(ops::baddbmm(ops::triu(later_TS, 1 + S - T), x.q, turned(x.k)), wide);
  }
  Tensor scores_of(Ref x_PTS, const Heads& views) const {
    return ops::view(x_PTS, {Info(views.q).size(0), heads(), Info(x_PTS).size(1), Info(x_PTS).size(2)});
  }
  void add(Ref scores_PTS, Ref added, const Heads& views) const { ops::add_(scores_of(scores_PTS, views), added); }
  Tensor bias_gradient(Ref d_PTS, Ref bias, const Heads& views) const {
    return cast(ops::sum_to_size(scores_of(d_PTS, views), Info(bias).shape()), Info(bias).dtype);
  }

  Tensor dropped(const mortise_call* call, Ref p_PTS, uint32_t dtype) const {
    return drops(call) ? kernels::dropout(p_PTS, nullptr, random_site(call), dropout(), dtype) : cast(p_PTS, dtype);
  }
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers, mortise::provide("attention", mortise::operator_of<mortise::Math>()))
