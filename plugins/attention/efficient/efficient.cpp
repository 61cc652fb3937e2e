// attention.efficient: ATen's memory-efficient attention of a GPU, in every dtype but fp64, with masks.
#include "kernels/attention/fused.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

struct Efficient {
  using Heads = kernels::AttentionLayer::Heads;

  static Refusal supports(const kernels::FusedPlace& asked) {
    if (asked.place->compute_dtype == MORTISE_F64) return asked.no("it computes in fp32, bf16 and fp16");
    if (asked.head_dim() % (asked.is_half() ? 8 : 4) != 0)
      return asked.no("it takes heads of widths that are multiples of 8 in 16 bits, of 4 in fp32");
    if (asked.is_grouped()) return asked.no("it wants as many heads of keys and values as of queries");
    return {};
  }

  static std::array<Tensor, 4> forward(const Heads& x, const Tensor& added, bool causal, double scale) {
    static const Op op("aten::_scaled_dot_product_efficient_attention");
    return op.many<4>(x.q, x.k, x.v, kernels::added_for_cuda(added, x), true, 0.0, causal, scale);
  }

  static std::array<Tensor, 3> backward(const Tensor& g, const Heads& x, const Tensor& y,
                                        const std::array<Tensor, 3>& kept, const Tensor& added, bool causal,
                                        double scale) {
    static const Op op("aten::_scaled_dot_product_efficient_attention_backward");
    static constexpr int64_t kOfQueriesKeysAndValues[] = {1, 1, 1, 0};
    return op.many<3>(g, x.q, x.k, x.v, kernels::added_for_cuda(added, x), y, kept[0], kept[1], kept[2], 0.0,
                      ints(kOfQueriesKeysAndValues), causal, scale);
  }
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers,
               mortise::provide("attention",
                                mortise::operator_of<mortise::kernels::FusedAttention<mortise::Efficient>>()))
