// attention.flash: ATen's flash attention, on the host's processor and on a GPU. Scores never exist as a whole; their
// log-sum-exp is what is kept. On the host's processor a mask is one array of numbers, made again in backward.
#include "kernels/attention/fused.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

struct Flash {
  using Heads = kernels::AttentionLayer::Heads;

  static Refusal supports(const kernels::FusedPlace& asked) {
    if (asked.place->device != MORTISE_CUDA) return {};
    if (!asked.is_half())
      return {"flash attention of a GPU computes in bf16 and fp16", "[precision.bf16], or [attention.efficient]"};
    if (asked.has_mask()) return {"flash attention of a GPU takes no mask", "[attention.efficient]"};
    if (asked.head_dim() % 8 != 0 || asked.head_dim() > 256)
      return asked.no("on a GPU it takes heads of widths up to 256 that are multiples of 8");
    return {};
  }

  static std::array<Tensor, 4> forward(const Heads& x, const Tensor& added, bool causal, double scale) {
    if (Info(x.q).device == MORTISE_CPU) {
      auto [y, log_sum] = ops::flash_attention_for_cpu(x.q, x.k, x.v, causal, added, scale);
      return {std::move(y), std::move(log_sum), Tensor(), Tensor()};
    }
    refuse_mask(added);
    static const Op op("aten::_scaled_dot_product_flash_attention");
    auto r = op.many<8>(x.q, x.k, x.v, 0.0, causal, false, scale);
    return {std::move(r[0]), std::move(r[1]), std::move(r[6]), std::move(r[7])};
  }

  static std::array<Tensor, 3> backward(const Tensor& g, const Heads& x, const Tensor& y,
                                        const std::array<Tensor, 3>& kept, const Tensor& added, bool causal,
                                        double scale) {
    if (Info(x.q).device == MORTISE_CPU)
      return ops::flash_attention_for_cpu_backward(g, x.q, x.k, x.v, y, kept[0], causal, added, scale);
    static const Op op("aten::_scaled_dot_product_flash_attention_backward");
    return op.many<3>(g, x.q, x.k, x.v, y, kept[0], none(), none(), Info(x.q).size(2), Info(x.k).size(2), 0.0, causal,
                      kept[1], kept[2], scale);
  }

 private:
  static void refuse_mask(const Tensor& added) {
    if (added) throw Error(MORTISE_E_UNSUPPORTED, "flash attention of a GPU takes no mask", "[attention.efficient]");
  }
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers,
               mortise::provide("attention", mortise::operator_of<mortise::kernels::FusedAttention<mortise::Flash>>()))
