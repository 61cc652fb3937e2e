#include "kernels/attention/attention.hpp"

#include <cmath>
#include <limits>

namespace mortise::kernels {
namespace {

bool is_bool_or_integer(uint32_t dtype) { return dtype >= MORTISE_I64; }

// [rows, columns] of bool, true where column − row is at least `from`.
Tensor columns_from(int64_t rows, int64_t columns, int64_t from) {
  const Tensor all = empty(MORTISE_BOOL, {rows, columns});
  ops::fill_(all, 1);
  return ops::triu(all, from);
}

}  // namespace

AttentionLayer::AttentionLayer(const LayerSpec& spec)
    : heads_(spec.integer("heads")), kv_heads_(spec.integer("kv_heads", heads_)), head_dim_(spec.integer("head_dim")),
      window_(spec.integer("window", 0)), causal_(spec.flag("causal", false)), scale_(spec.number("scale", 0)),
      dropout_(spec.number("dropout", 0)),
      mask_(static_cast<Mask>(spec.choice("mask", {"none", "keys", "segments", "full"}))), path_(spec.path()) {
  if (heads_ < 1 || head_dim_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0)
    throw Error(MORTISE_E_ARGUMENT, path_ + ": " + std::to_string(kv_heads_) +
                                        " heads of keys and values cannot serve " + std::to_string(heads_) +
                                        " heads of queries of width " + std::to_string(head_dim_) + " alike");
  if (window_ < 0) throw Error(MORTISE_E_ARGUMENT, path_ + ": a window cannot be negative; 0 is none");
  if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(head_dim_));
}

Tensor AttentionLayer::optional(const mortise_call* call, uint32_t index) {
  return index < call->n_args && call->args[index].tag == MORTISE_TENSOR ? Tensor::share(Ref(call->args[index]))
                                                                         : Tensor();
}

std::array<Tensor, 3> AttentionLayer::cast_arguments(const mortise_call* call) const {
  std::array<Tensor, 3> qkv;
  for (uint32_t i = 0; i < 3; ++i)
    if (const Tensor x = optional(call, i)) qkv[i] = cast(x, call->compute_dtype);
  check_shapes(qkv[0], qkv[1], qkv[2]);
  check_mask(mask_argument(call), heads_of(qkv[0], qkv[1], qkv[2]));
  return qkv;
}

AttentionLayer::Heads AttentionLayer::heads_of_call(const mortise_call* call) const {
  const auto [q, k, v] = cast_arguments(call);
  return heads_of(q, k, v);
}

AttentionLayer::Heads AttentionLayer::heads_of_call(mortise_call* call, Saves& saves) const {
  const std::array<Tensor, 3> qkv = cast_arguments(call);
  for (uint32_t i = 0; i < 3; ++i) qkv[i] ? saves.input(i, qkv[i]) : saves.own(Tensor());
  mask_argument(call) ? saves.input(3) : saves.own(Tensor());
  bias_argument(call) ? saves.input(4) : saves.own(Tensor());
  return heads_of(qkv[0], qkv[1], qkv[2]);
}

void AttentionLayer::check_shapes(Ref q, Ref k, Ref v) const {
  if (!q || !k != !v) throw Error(MORTISE_E_SHAPE, path_ + ": attention takes queries, or queries, keys and values");
  const int64_t own = heads_ * head_dim_, shared = kv_heads_ * head_dim_;
  const auto fits = [](Ref x, int64_t width) { return Info(x).rank == 3 && Info(x).size(-1) == width; };
  const auto n = [](int64_t i) { return std::to_string(i); };
  if (!k && !fits(q, own + 2 * shared))
    throw Error(MORTISE_E_SHAPE, path_ + ": attention takes queries, keys and values packed as [batch, positions, " +
                                     n(own + 2 * shared) + "]");
  if (!k) return;
  if (!fits(q, own) || !fits(k, shared) || !fits(v, shared) || Info(k).size(1) != Info(v).size(1) ||
      Info(q).size(0) != Info(k).size(0) || Info(q).size(0) != Info(v).size(0))
    throw Error(MORTISE_E_SHAPE, path_ + ": attention takes queries [batch, positions, " + n(own) +
                                     "], keys and values [batch, positions, " + n(shared) + "]");
  if (causal_ && Info(q).size(1) > Info(k).size(1))
    throw Error(MORTISE_E_SHAPE, path_ + ": of " + n(Info(q).size(1)) + " queries over " + n(Info(k).size(1)) +
                                     " keys the first would see none, since the last ones stand side by side");
}

void AttentionLayer::check_mask(Ref mask, const Heads& heads) const {
  static constexpr std::array<const char*, 4> kNames = {"none", "keys", "segments", "full"};
  if (!mask) return;
  if (mask_ == Mask::kNone)
    throw Error(MORTISE_E_UNSUPPORTED, path_ + ": a mask came, and the layer was declared without one",
                "the model's attribute `mask` of attention");
  const Info q(heads.q), k(heads.k), m(mask);
  const auto broadcasts = [&](int dim, int64_t to) { return m.size(dim) == to || m.size(dim) == 1; };
  const bool fits = mask_ == Mask::kFull ? m.rank == 4 && broadcasts(0, q.size(0)) && broadcasts(1, heads_) &&
                                               broadcasts(2, q.size(2)) && broadcasts(3, k.size(2))
                                         : m.rank == 2 && m.size(0) == q.size(0) && m.size(1) == k.size(2) &&
                                               (mask_ == Mask::kKeys || q.size(2) == k.size(2));
  if (!fits)
    throw Error(MORTISE_E_SHAPE, path_ + ": the mask has not the shape of one of " +
                                     kNames[static_cast<size_t>(mask_)] + " (operator.h)");
}

Tensor AttentionLayer::split(Ref x, int64_t heads) const {
  return ops::transpose(ops::reshape(x, {Info(x).size(0), Info(x).size(1), heads, head_dim_}), 1, 2);
}
Tensor AttentionLayer::merge(Ref x) {
  const Info i(x);
  return ops::reshape(ops::transpose(x, 1, 2), {i.size(0), i.size(2), i.size(1) * i.size(3)});
}

Tensor AttentionLayer::flat(Ref x_BHTD) {
  const Info i(x_BHTD);
  return ops::contiguous(ops::reshape(x_BHTD, {i.size(0) * i.size(1), i.size(2), i.size(3)}));
}

Tensor AttentionLayer::repeated(const Tensor& x) const {
  const int64_t each = heads_ / kv_heads_;
  if (each == 1) return x;
  const Info i(x);
  const Tensor spread = ops::expand(ops::unsqueeze(x, 2), {i.size(0), i.size(1), each, i.size(2), i.size(3)});
  return ops::reshape(spread, {i.size(0), heads_, i.size(2), i.size(3)});
}
Tensor AttentionLayer::shared(const Tensor& d) const {
  const int64_t each = heads_ / kv_heads_;
  if (each == 1) return d;
  const Info i(d);
  return ops::sum_over(ops::reshape(d, {i.size(0), kv_heads_, each, i.size(2), i.size(3)}), 2);
}

AttentionLayer::Heads AttentionLayer::heads_of(Ref q, Ref k, Ref v) const {
  if (k) return {split(q, heads_), split(k, kv_heads_), split(v, kv_heads_)};
  const int64_t own = heads_ * head_dim_, shared = kv_heads_ * head_dim_;
  return {split(ops::narrow(q, 2, 0, own), heads_), split(ops::narrow(q, 2, own, shared), kv_heads_),
          split(ops::narrow(q, 2, own + shared, shared), kv_heads_)};
}
AttentionLayer::Heads AttentionLayer::heads_of_saved(const Backward& b) const {
  return heads_of(b.saved(0), b.saved(1), b.saved(2));
}

void AttentionLayer::give_gradients(Backward& b, const Heads& d, bool packed) const {
  if (!packed) {
    if (b.wants(0)) b.give(0, merge(d.q));
    if (b.wants(1)) b.give(1, merge(d.k));
    if (b.wants(2)) b.give(2, merge(d.v));
    return;
  }
  if (!b.wants(0)) return;
  const Tensor q = ops::transpose(d.q, 1, 2), k = ops::transpose(d.k, 1, 2), v = ops::transpose(d.v, 1, 2);
  const Info i(q);
  b.give(0, ops::reshape(ops::cat({q.get(), k.get(), v.get()}, 2), {i.size(0), i.size(1), -1}));
}

// True where a key is as far from a query as the window is wide, or farther; under `causal` also where it comes later.
Tensor AttentionLayer::outside_window(int64_t queries, int64_t keys, bool causal) const {
  const int64_t last = keys - queries;  // how many keys come before the first query
  const auto later = [&](int64_t by) { return columns_from(queries, keys, last + by); };
  Tensor outside;
  if (causal) outside = later(1);
  if (window_ == 0) return outside;
  const Tensor before = ops::logical_not(later(1 - window_));
  outside = outside ? ops::logical_or(outside, before) : before;
  return causal_ ? outside : ops::logical_or(outside, later(window_));
}

Tensor AttentionLayer::added_to_scores(Ref mask, const Heads& like, bool causal) const {
  const int64_t B = Info(like.q).size(0), T = Info(like.q).size(2), S = Info(like.k).size(2);
  const uint32_t dtype = Info(like.q).dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32;
  Tensor forbidden = outside_window(T, S, causal);
  Tensor numbers;
  if (mask && mask_ == Mask::kSegments) {
    const Tensor others = ops::ne(ops::reshape(mask, {B, 1, T, 1}), ops::reshape(mask, {B, 1, 1, S}));
    forbidden = forbidden ? ops::logical_or(forbidden, others) : others;
  } else if (mask) {
    const Tensor shaped = mask_ == Mask::kKeys ? ops::reshape(mask, {B, 1, 1, S}) : Tensor::share(mask);
    if (is_bool_or_integer(Info(mask).dtype)) {
      const Tensor hidden = ops::logical_not(shaped);
      forbidden = forbidden ? ops::logical_or(forbidden, hidden) : hidden;
    } else {
      numbers = cast(shaped, dtype);
    }
  }
  if (!forbidden) return numbers;
  const Tensor zeros = empty(dtype, Info(forbidden).shape());
  ops::fill_(zeros, 0);
  const Tensor lowest = ops::masked_fill(zeros, forbidden, std::numeric_limits<float>::lowest());
  return numbers ? ops::add(numbers, lowest) : lowest;
}

}  // namespace mortise::kernels
