// attention.cudnn: cuDNN's attention of a GPU, in bf16 and fp16, with masks: the fastest on sm_90.
#include "kernels/attention/fused.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

struct Cudnn {
  using Heads = kernels::AttentionLayer::Heads;

  static Refusal supports(const kernels::FusedPlace& asked) {
    if (!asked.is_half())
      return {"cuDNN's attention computes in bf16 and fp16", "[precision.bf16], or [attention.efficient]"};
    if (asked.head_dim() % 8 != 0 || asked.head_dim() > 128)
      return asked.no("it takes heads of widths up to 128 that are multiples of 8");
    return {};
  }

  static std::array<Tensor, 4> forward(const Heads& x, const Tensor& added, bool causal, double scale) {
    static const Op op("aten::_scaled_dot_product_cudnn_attention");
    auto r = op.many<8>(x.q, x.k, x.v, kernels::added_for_cuda(added, x), true, 0.0, causal, false, scale);
    return {std::move(r[0]), std::move(r[1]), std::move(r[6]), std::move(r[7])};
  }

  static std::array<Tensor, 3> backward(const Tensor& g, const Heads& x, const Tensor& y,
                                        const std::array<Tensor, 3>& kept, const Tensor& added, bool causal,
                                        double scale) {
    static const Op op("aten::_scaled_dot_product_cudnn_attention_backward");
    return op.many<3>(g, x.q, x.k, x.v, y, kept[0], kept[1], kept[2], kernels::added_for_cuda(added, x), none(), none(),
                      Info(x.q).size(2), Info(x.k).size(2), 0.0, causal, scale);
  }
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers,
               mortise::provide("attention", mortise::operator_of<mortise::kernels::FusedAttention<mortise::Cudnn>>()))
