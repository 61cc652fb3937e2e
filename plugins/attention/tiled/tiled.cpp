// attention.tiled: our own kernel for a GPU, with the dropout that every other device draws, and no array of positions
// by positions.
//
// Saved  the arguments, the result, and two numbers a row of queries.
#include "kernels/attention/scores.hpp"
#include "kernels/cuda/ledger.hpp"
#include "kernels/tiled_attention/tiled_attention_cuda.h"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

using kernels::HeadsView;

class Tiled : kernels::AttentionLayer {
 public:
  Tiled(const Builder&, const LayerSpec& spec) : AttentionLayer(spec) {}

  static Refusal supports(const mortise_place* place) {
    const Attrs attrs(place);
    const std::string fix = "[attention.math], or let it choose: [attention.auto]";
    if (!MORTISE_HAS_CUDA) return {"it was built without nvcc", fix};
    if (const char* why = kernels::tiled_attention_refuses(place->compute_dtype, attrs.integer("head_dim", 0)))
      return {why, fix};
    if (attrs.flag("bias", false)) return {"it takes no bias", fix};
    return {};
  }

  void forward(mortise_call* call, Saves& saves) const {
    const Inputs in(*this, heads_of_call(call, saves), mask_argument(call));
    const Tensor y = empty(in.dtype, {in.batch, in.queries, heads() * head_dim()});
    Tensor rows = empty(MORTISE_F32, {2, in.batch, heads(), in.queries});
    launch([&] {
      return kernels::tiled_attention_cuda(job(call, in), view(split(y, heads())), Info(rows).as<float>(),
                                           stream_now());
    });
    give(call, 0, Tensor::share(Ref(y)));
    saves.output(0);
    saves.own(std::move(rows));
  }

  void backward(mortise_call* call, Backward& b) const {
    if (!b.grad(0)) return;
    const Inputs in(*this, heads_of_saved(b), saved_mask(b));
    const Tensor dy = aligned(split(cast(b.grad(0), in.dtype), heads()));
    const Tensor dots = empty(MORTISE_F32, {in.batch, heads(), in.queries});
    std::array<Tensor, 3> whole = gradients(in, !b.saved(1));
    const Heads d = heads_of(whole[0], whole[1], whole[2]);
    launch([&] {
      return kernels::tiled_attention_backward_cuda(job(call, in), view(split(b.saved(5), heads())),
                                                    Info(b.saved(6)).as<const float>(), view(dy), view(d.q), view(d.k),
                                                    view(d.v), Info(dots).as<float>(), stream_now());
    });
    for (uint32_t i = 0; i < 3; ++i)
      if (whole[i] && b.wants(i)) b.give(i, std::move(whole[i]));
  }

 private:
  // Queries, keys and values as the kernel reads them, and what is added to the scores.
  struct Inputs {
    Inputs(const Tiled& layer, const Heads& x, const Tensor& mask)
        : q(aligned(x.q)), k(aligned(x.k)), v(aligned(x.v)), added(kernels::added_by_strides(layer, mask, x)),
          dtype(Info(q).dtype), batch(Info(q).size(0)), queries(Info(q).size(2)), keys(Info(k).size(2)) {}
    Tensor q, k, v, added;
    uint32_t dtype;
    int64_t batch, queries, keys;
  };

  // In the arguments' own form: three tensors, or one that has all three packed.
  std::array<Tensor, 3> gradients(const Inputs& in, bool packed) const {
    const int64_t own = heads() * head_dim(), shared = kv_heads() * head_dim();
    if (packed) return {empty(in.dtype, {in.batch, in.queries, own + 2 * shared}), {}, {}};
    return {empty(in.dtype, {in.batch, in.queries, own}), empty(in.dtype, {in.batch, in.keys, shared}),
            empty(in.dtype, {in.batch, in.keys, shared})};
  }

  // Every row at a multiple of sixteen bytes, its numbers side by side.
  static Tensor aligned(Ref x) {
    const Info i(x);
    bool fits = i.strides[3] == 1 && reinterpret_cast<uintptr_t>(i.data) % 16 == 0;
    for (int dim = 0; dim < 3; ++dim) fits &= i.strides[dim] % 8 == 0;
    return fits ? Tensor::share(x) : ops::contiguous(x);
  }
  static HeadsView view(Ref x) {
    const Info i(x);
    return {i.data, i.strides[0], i.strides[1], i.strides[2]};
  }

  kernels::TiledAttention job(mortise_call* call, const Inputs& in) const {
    kernels::TiledAttention a = {};
    a.dtype = in.dtype;
    a.batch = static_cast<int>(in.batch);
    a.kv_heads = static_cast<int>(kv_heads());
    a.queries = static_cast<int>(in.queries);
    a.keys = static_cast<int>(in.keys);
    a.width = static_cast<int>(head_dim());
    a.q = view(in.q);
    a.k = view(in.k);
    a.v = view(in.v);
    kernels::describe_scores(a, *this, call, in.added);
    return a;
  }

  template <class Launch>
  static void launch(const Launch& kernel) {
    if constexpr (MORTISE_HAS_CUDA) kernels::check_launch(kernel());
  }
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers, mortise::provide("attention", mortise::operator_of<mortise::Tiled>()))
