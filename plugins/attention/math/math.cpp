// attention.math: softmax(q·kᵀ / √D + mask)·v, every step by hand, the probabilities kept for backward.
//
// Shapes  B batch, T positions, H heads, D head's width; P = B·H, one pair of a sample and a head.
// Dtypes  products in the compute dtype; scores, softmax and its gradient in fp32 (fp64 of fp64).
// Memory  P·T·T numbers are saved; with dropout the dropped copy of them is made again in backward.
#include <cmath>
#include <limits>

#include "kernels/dropout/dropout.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

class Math {
 public:
  Math(const Builder&, const LayerSpec& spec)
      : heads_(spec.integer("heads")), head_dim_(spec.integer("head_dim")), causal_(spec.flag("causal", false)),
        dropout_(spec.number("dropout", 0)) {}

  static Refusal supports(const mortise_place* place) {
    const std::string mask(Attrs(place).text("mask", "none"));
    if (mask != "none" && mask != "keys")
      return {"attention.math knows a mask of keys, [B, T], and no other (" + mask + ")", "another attention"};
    if (place->device == MORTISE_CPU || place->mode != MORTISE_TRAIN || Attrs(place).number("dropout", 0) == 0)
      return {};
    return {"dropout of attention.math runs on the CPU only", "dropout = 0"};
  }

  void forward(mortise_call* call, Saves& saves) const {
    const Tensor qkv = cast(call->args[0], call->compute_dtype);
    const Info like(qkv);
    if (like.rank != 3 || like.size(-1) != 3 * heads_ * head_dim_)
      throw Error(MORTISE_E_SHAPE,
                  "attention takes queries, keys and values packed as [batch, positions, 3 * heads * head_dim]");
    const auto [q, k, v] = heads_of(qkv);
    Tensor p_PTT = scores(q, k, like);
    if (call->n_args > 1 && call->args[1].tag == MORTISE_TENSOR) add_mask(p_PTT, call->args[1], like);
    ops::softmax_out(p_PTT, p_PTT);
    give(call, 0, merge(ops::bmm(dropped(call, p_PTT, like.dtype), v), like));
    saves.input(0, qkv);
    saves.own(std::move(p_PTT));
  }

  void backward(mortise_call* call, Backward& b) const {
    if (!b.grad(0) || !b.wants(0)) return;
    const Ref p_PTT = b.saved(1);
    const Info like(b.saved(0));
    const auto [q, k, v] = heads_of(b.saved(0));
    const Tensor g_PTD = split(cast(b.grad(0), like.dtype));
    const Tensor d_3PTD = empty(like.dtype, {3, like.size(0) * heads_, like.size(1), head_dim_});
    const Tensor dq = ops::select(d_3PTD, 0, 0), dk = ops::select(d_3PTD, 0, 1), dv = ops::select(d_3PTD, 0, 2);

    ops::bmm_out(turned(dropped(call, p_PTT, like.dtype)), g_PTD, dv);
    Tensor d_PTT = cast(ops::bmm(g_PTD, turned(v)), Info(p_PTT).dtype);
    if (drops(call)) d_PTT = kernels::dropout(d_PTT, nullptr, random_site(call), dropout_, Info(p_PTT).dtype);
    ops::softmax_backward_out(d_PTT, p_PTT, d_PTT);
    d_PTT = cast(d_PTT, like.dtype);
    ops::bmm_out(d_PTT, k, dq);
    ops::mul_(dq, scale());
    ops::copy_(dk, turned(ops::bmm(turned(q), d_PTT)));  // the way round that autograd has it, for its bits
    b.give(0, pack(d_3PTD, like));
  }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim_)); }
  bool drops(const mortise_call* call) const { return dropout_ > 0 && call->mode == MORTISE_TRAIN; }
  static Tensor turned(Ref x) { return ops::transpose(x, 1, 2); }

  // q (scaled), k, v as [P, T, D].
  std::array<Tensor, 3> heads_of(Ref qkv) const {
    const Info like(qkv);
    const int64_t B = like.size(0), T = like.size(1);
    const Tensor parts =
        ops::contiguous(ops::permute(ops::reshape(qkv, {B, T, 3, heads_, head_dim_}), {2, 0, 3, 1, 4}));
    const Tensor x_3PTD = ops::view(parts, {3, B * heads_, T, head_dim_});
    std::array<Tensor, 3> r = {ops::select(x_3PTD, 0, 0), ops::select(x_3PTD, 0, 1), ops::select(x_3PTD, 0, 2)};
    ops::mul_(r[0], scale());
    return r;
  }

  // In fp32 or wider. Positions after one's own count as minus infinity.
  Tensor scores(Ref q, Ref k, const Info& like) const {
    const uint32_t wide = like.dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32;
    if (!causal_) return cast(ops::bmm(q, turned(k)), wide);
    const Tensor later_TT = empty(like.dtype, {like.size(1), like.size(1)});
    ops::fill_(later_TT, -std::numeric_limits<double>::infinity());
    return cast(ops::baddbmm(ops::triu(later_TT, 1), q, turned(k)), wide);
  }

  // A mask of numbers is added to the scores of its keys. Where a boolean one is false the lowest number is: not
  // infinity, so that a row without any key stays finite.
  void add_mask(Ref scores_PTT, Ref mask_BT, const Info& like) const {
    const int64_t B = like.size(0), T = like.size(1);
    Tensor added = Tensor::share(mask_BT);
    const uint32_t dtype = Info(mask_BT).dtype;
    if (dtype >= MORTISE_I64) {
      added = empty(MORTISE_F32, Info(mask_BT).shape());
      ops::fill_(added, 0);
      added = ops::masked_fill(added, ops::logical_not(mask_BT), std::numeric_limits<float>::lowest());
    }
    ops::add_(ops::view(scores_PTT, {B, heads_, T, T}), ops::reshape(added, {B, 1, 1, T}));
  }

  Tensor dropped(const mortise_call* call, Ref p_PTT, uint32_t dtype) const {
    return drops(call) ? kernels::dropout(p_PTT, nullptr, random_site(call), dropout_, dtype) : cast(p_PTT, dtype);
  }

  // [B, T, H·D] → [P, T, D] and back; and the three gradients as qkv was packed.
  Tensor split(Ref x) const {
    const int64_t B = Info(x).size(0), T = Info(x).size(1);
    return ops::reshape(ops::permute(ops::reshape(x, {B, T, heads_, head_dim_}), {0, 2, 1, 3}),
                        {B * heads_, T, head_dim_});
  }
  Tensor merge(Ref x_PTD, const Info& like) const {
    const int64_t B = like.size(0), T = like.size(1);
    return ops::reshape(ops::permute(ops::view(x_PTD, {B, heads_, T, head_dim_}), {0, 2, 1, 3}),
                        {B, T, heads_ * head_dim_});
  }
  Tensor pack(Ref x_3PTD, const Info& like) const {
    const int64_t B = like.size(0), T = like.size(1);
    return ops::reshape(ops::permute(ops::view(x_3PTD, {3, B, heads_, T, head_dim_}), {1, 3, 0, 2, 4}),
                        {B, T, 3 * heads_ * head_dim_});
  }

  int64_t heads_, head_dim_;
  bool causal_;
  double dropout_;
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers, mortise::provide("attention", mortise::operator_of<mortise::Math>()))
