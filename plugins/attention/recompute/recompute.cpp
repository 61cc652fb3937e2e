// attention.recompute: softmax(q·kᵀ · scale + mask)·v in fp32 by LibTorch's products and our own rows of probabilities,
// some heads at a time; backward makes the probabilities again.
//
// Shapes  as in attention.hpp; P = B·H, one pair of a sample and a head.
// Saved   queries, keys and values as heads [B, H, T, D], [B, K, S, D]; the mask; an array of q's own, of no further
//         bytes, where the three did not come packed.
// Memory  two arrays [n, T, S] of the n heads that `workspace` holds, for the time of a call.
#include <algorithm>

#include "kernels/attention/scores.hpp"
#include "kernels/cuda/ledger.hpp"
#include "kernels/probabilities/probabilities_cuda.h"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

class Recompute : kernels::AttentionLayer {
 public:
  Recompute(const Builder&, const LayerSpec& spec)
      : AttentionLayer(spec), workspace_(config::integer("workspace") << 20) {}

  static Refusal supports(const mortise_place* place) {
    const std::string fix = "[attention.math], or let it choose: [attention.auto]";
    if (!MORTISE_HAS_CUDA) return {"it was built without nvcc", fix};
    if (place->compute_dtype != MORTISE_F32 && place->compute_dtype != MORTISE_NO_DTYPE)
      return {"it computes in fp32", fix};
    if (Attrs(place).flag("bias", false)) return {"it takes no bias", fix};
    return {};
  }

  void forward(mortise_call* call, Saves& saves) const {
    const Heads views = heads_of_call(call);
    const uint32_t dtype = Info(views.q).dtype;
    if (dtype == MORTISE_F64)  // of weights that are stored so, where no precision was asked for
      throw Error(MORTISE_E_UNSUPPORTED, "attention.recompute computes in fp32, and queries came in fp64",
                  "[attention.math]");
    const auto own = [](Ref x) { return ops::contiguous(cast(x, MORTISE_F32)); };
    const Heads x = {own(views.q), own(views.k), own(views.v)};
    const Inputs in(*this, x, mask_argument(call));
    const Tensor y = empty(MORTISE_F32, {in.pairs, in.queries, head_dim()});
    const int64_t most = heads_at_once(in, 1);
    const Tensor p = empty(MORTISE_F32, {most, in.queries, in.keys});
    for (int64_t first = 0; first < in.pairs; first += most) {
      const Some some{first, std::min(most, in.pairs - first)};
      const Tensor p_now = some.begin_of(p);
      ops::bmm_out(some.of(in.q), turned(some.of(in.k)), p_now);
      launch(call, in, some, p_now, nullptr);
      ops::bmm_out(p_now, some.of(in.v), some.of(y));
    }
    give(call, 0, cast(merge(as_heads(y, in)), dtype));
    for (const Tensor* kept : {&x.q, &x.k, &x.v}) saves.own(*kept);
    mask_argument(call) ? saves.input(3) : saves.own(Tensor());
    const bool packed = call->n_args < 2 || call->args[1].tag != MORTISE_TENSOR;
    saves.own(packed ? Tensor() : x.q);
  }

  void backward(mortise_call* call, Backward& b) const {
    if (!b.grad(0)) return;
    const auto saved = [&](uint32_t i) { return Tensor::share(b.saved(i)); };
    const Inputs in(*this, {saved(0), saved(1), saved(2)}, saved_mask(b));
    const std::array<int64_t, 3> of_queries = {in.pairs, in.queries, head_dim()};
    const std::array<int64_t, 3> of_keys = {in.pairs, in.keys, head_dim()};
    const Heads d = {empty(MORTISE_F32, of_queries), empty(MORTISE_F32, of_keys), empty(MORTISE_F32, of_keys)};
    differentiate(call, in, flat(split(cast(b.grad(0), MORTISE_F32), heads())), d);
    give_gradients(b, {as_heads(d.q, in), shared(as_heads(d.k, in)), shared(as_heads(d.v, in))}, !b.saved(4));
  }

 private:
  // A few of the pairs.
  struct Some {
    int64_t first, n;
    Tensor of(Ref all) const { return ops::narrow(all, 0, first, n); }
    Tensor begin_of(Ref all) const { return ops::narrow(all, 0, 0, n); }
  };

  // Queries, keys and values as [P, T, D], [P, S, D], [P, S, D], and what is added to the scores.
  struct Inputs {
    Inputs(const Recompute& layer, const Heads& x, const Tensor& mask)
        : q(flat(x.q)), k(flat(layer.repeated(x.k))), v(flat(layer.repeated(x.v))), batch(Info(x.q).size(0)),
          pairs(Info(q).size(0)), queries(Info(q).size(1)), keys(Info(k).size(1)) {
      if (keys > kernels::kMostKeys)
        throw Error(MORTISE_E_UNSUPPORTED, "attention.recompute takes 32,768 keys at most", "[attention.math]");
      added = kernels::added_by_strides(layer, mask, x);
    }
    Tensor q, k, v, added;
    int64_t batch, pairs, queries, keys;
  };

  // Of the gradient of the result into `d`, all [P, T, D] or [P, S, D]. The scores are gone when it returns.
  void differentiate(mortise_call* call, const Inputs& in, Ref g, const Heads& d) const {
    const int64_t most = heads_at_once(in, 2);
    const Tensor p = empty(MORTISE_F32, {most, in.queries, in.keys}), s = empty(MORTISE_F32, Info(p).shape());
    for (int64_t first = 0; first < in.pairs; first += most) {
      const Some some{first, std::min(most, in.pairs - first)};
      const Tensor p_now = some.begin_of(p), s_now = some.begin_of(s), g_now = some.of(g);
      const Tensor q_now = some.of(in.q), k_now = some.of(in.k);
      ops::bmm_out(q_now, turned(k_now), p_now);
      ops::bmm_out(g_now, turned(some.of(in.v)), s_now);
      launch(call, in, some, p_now, s_now);
      ops::bmm_out(turned(p_now), g_now, some.of(d.v));
      ops::bmm_out(s_now, k_now, some.of(d.q));
      ops::bmm_out(turned(s_now), q_now, some.of(d.k));
    }
  }

  Tensor as_heads(Ref x_PTD, const Inputs& in) const {
    return ops::view(x_PTD, {in.batch, heads(), Info(x_PTD).size(1), head_dim()});
  }

  // Of which `workspace` holds `arrays` arrays of scores, in steps as equal as can be.
  int64_t heads_at_once(const Inputs& in, int64_t arrays) const {
    const int64_t bytes = arrays * in.queries * in.keys * 4;
    const int64_t most =
        std::clamp<int64_t>(workspace_ / std::max<int64_t>(bytes, 1), 1, std::max<int64_t>(in.pairs, 1));
    const int64_t times = std::max<int64_t>((in.pairs + most - 1) / most, 1);
    return (in.pairs + times - 1) / times;
  }

  void launch([[maybe_unused]] mortise_call* call, [[maybe_unused]] const Inputs& in, [[maybe_unused]] Some some,
              [[maybe_unused]] Ref scores, [[maybe_unused]] Ref grads) const {
    if constexpr (MORTISE_HAS_CUDA) {
      kernels::Probabilities a = {};
      a.queries = static_cast<int>(in.queries);
      a.keys = static_cast<int>(in.keys);
      kernels::describe_scores(a, *this, call, in.added);
      const int64_t first = some.first * in.queries, n = some.n * in.queries;
      const auto numbers = [](Ref x) { return Info(x).as<float>(); };
      kernels::check_launch(
          grads ? kernels::probabilities_backward_cuda(a, first, n, numbers(scores), numbers(grads), stream_now())
                : kernels::probabilities_cuda(a, first, n, numbers(scores), stream_now()));
    }
  }

  int64_t workspace_;  // bytes
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers, mortise::provide("attention", mortise::operator_of<mortise::Recompute>()))
