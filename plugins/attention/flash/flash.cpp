// attention.flash: ATen's flash attention for the CPU. Scores never exist as a whole; their log-sum-exp is what is
// kept. A mask is one array of numbers, made again in backward.
#include <cstdio>

#include "kernels/attention/attention.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {
namespace {

class Flash : kernels::AttentionLayer {
 public:
  Flash(const Builder&, const LayerSpec& spec) : AttentionLayer(spec) {}

  static Refusal supports(const mortise_place* place) {
    const double p = Attrs(place).number("dropout", 0);
    const std::string_view fix = "[attention.math], or let it choose: [attention.auto]";
    if (place->device != MORTISE_CPU) return {"attention.flash is a kernel of the CPU", "[attention.math]"};
    if (Attrs(place).flag("bias", false)) return {"it takes no bias", std::string(fix)};
    if (p == 0 || place->mode != MORTISE_TRAIN) return {};
    char why[64];
    std::snprintf(why, sizeof why, "dropout %g in training", p);
    return {why, std::string(fix)};
  }

  // Saved, after the arguments: the result, the log-sum-exp.
  void forward(mortise_call* call, Saves& saves) const {
    const Heads x = heads_of_call(call, saves);
    if (bias_argument(call))
      throw Error(MORTISE_E_UNSUPPORTED,
                  "attention.flash takes no bias, and the layer was declared without one: its attribute `bias`",
                  "[attention.math]");
    auto [y_BHTD, log_sum] =
        ops::flash_attention_for_cpu(x.q, x.k, x.v, by_kernel(x), added(mask_argument(call), x), scale());
    give(call, 0, merge(y_BHTD));
    saves.output(0);
    saves.own(std::move(log_sum));
  }

  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0)) return;
    const Heads x = heads_of_saved(b);
    auto [dq, dk, dv] = ops::flash_attention_for_cpu_backward(split(cast(b.grad(0), Info(x.q).dtype), heads()), x.q,
                                                              x.k, x.v, split(b.saved(5), heads()), b.saved(6),
                                                              by_kernel(x), added(saved_mask(b), x), scale());
    give_gradients(b, {std::move(dq), std::move(dk), std::move(dv)});
  }

 private:
  // The kernel's own causal mask has the first query where the first key is.
  bool by_kernel(const Heads& x) const { return causal() && Info(x.q).size(2) == Info(x.k).size(2); }
  Tensor added(Ref mask, const Heads& x) const { return added_to_scores(mask, x, causal() && !by_kernel(x)); }
};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Layers, mortise::provide("attention", mortise::operator_of<mortise::Flash>()))
