// What every attention shares: its attributes, its arguments as heads, and all that forbids a query a key as one mask.
//
// Shapes  B batch, T queries, S keys, H heads, K heads of keys and values, D width of a head. The last query stands
//         where the last key does, so with fewer queries than keys they are the last ones.
#pragma once
#include "mortise/cpp/operator.hpp"

namespace mortise::kernels {

class AttentionLayer {
 public:
  explicit AttentionLayer(const LayerSpec& spec);

  // Queries, keys and values as views [B, H, T, D], [B, K, S, D], [B, K, S, D].
  struct Heads {
    Tensor q, k, v;
  };
  // From the arguments, cast to the compute dtype, which are saved first: q, k, v (the last two absent of a packed
  // one), mask, bias. Anything of another shape than operator.h says is refused.
  Heads heads_of_call(mortise_call* call, Saves& saves) const;
  // The same, and nothing is saved.
  Heads heads_of_call(const mortise_call* call) const;
  // The same of tensors that have the arguments' own form: three, or one that has all packed. Views of them.
  Heads heads_of(Ref q, Ref k, Ref v) const;
  // From what was saved.
  Heads heads_of_saved(const Backward& b) const;
  // Gradients [B, H, T, D] and [B, K, S, D], in the arguments' own form: packed where no keys were saved.
  void give_gradients(Backward& b, const Heads& d) const { give_gradients(b, d, !b.saved(1)); }
  void give_gradients(Backward& b, const Heads& d, bool packed) const;
  static Tensor mask_argument(const mortise_call* call) { return optional(call, 3); }
  static Tensor bias_argument(const mortise_call* call) { return optional(call, 4); }
  static Tensor saved_mask(const Backward& b) { return Tensor::share(b.saved(3)); }
  static Tensor saved_bias(const Backward& b) { return Tensor::share(b.saved(4)); }

  // What is added to the scores, broadcast to [B, H, T, S], fp32 (fp64 of fp64); empty if nothing is. Where a key may
  // not be seen the lowest number stands, not infinity, so that a query without any key stays finite. `causal`: that
  // too. `like` is q and k of the call.
  Tensor added_to_scores(Ref mask, const Heads& like, bool causal) const;

  Tensor split(Ref x, int64_t heads) const;  // [B, T, heads·D] → [B, heads, T, D], a view
  static Tensor merge(Ref x);                // and back, a copy
  // [B, H, T, D] → [P, T, D] with P = B·H, side by side; and each matrix turned, a view: what products take.
  static Tensor flat(Ref x_BHTD);
  static Tensor turned(Ref x_PTD) { return ops::transpose(x_PTD, 1, 2); }
  // [B, K, S, D] → [B, H, S, D], each head as often as it serves, and the sum of gradients back.
  Tensor repeated(const Tensor& x) const;
  Tensor shared(const Tensor& d) const;

  bool causal() const { return causal_; }
  double scale() const { return scale_; }
  double dropout() const { return dropout_; }
  int64_t heads() const { return heads_; }
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  enum class Mask { kNone, kKeys, kSegments, kFull };
  static Tensor optional(const mortise_call* call, uint32_t index);
  std::array<Tensor, 3> cast_arguments(const mortise_call* call) const;
  void check_shapes(Ref q, Ref k, Ref v) const;
  void check_mask(Ref mask, const Heads& heads) const;
  Tensor outside_window(int64_t queries, int64_t keys, bool causal) const;

  int64_t heads_, kv_heads_, head_dim_, window_;
  bool causal_;
  double scale_, dropout_;
  Mask mask_;
  std::string path_;
};

}  // namespace mortise::kernels
