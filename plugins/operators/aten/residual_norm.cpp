// residual_norm: sum = residual + dropout(branch); y = norm(sum). Two results, two incoming gradients, either of which
// may be absent. The sum is the residual stream: an fp32 stream stays fp32 under a bf16 branch.
#include "normalise.hpp"

namespace mortise::aten {
namespace {

class ResidualNorm {
 public:
  ResidualNorm(const Builder& build, const LayerSpec& spec)
      : norm_(build, spec), dropout_(dropout_of(spec, "dropout")) {}
  static Refusal supports(const mortise_place* place) { return dropout_supports(place, "dropout"); }

  void forward(mortise_call* call, Saves& saves) const {
    Tensor sum = add(call, call->args[0], call->args[1]);
    saves.output(1);
    give(call, 0, norm_.forward(call, sum, saves));
    give(call, 1, std::move(sum));
  }

  void backward(mortise_call* call, Backward& b) const {
    Tensor g = Tensor::share(b.grad(1));
    if (b.grad(0)) {
      const Tensor through = norm_.backward(b, b.grad(0), b.saved(0), 1, b.wants(0) || b.wants(1));
      if (through) g = g ? ops::add(g, through) : through;
    }
    if (!g) return;
    if (b.wants(0))
      b.give(0, drops(call, dropout_) ? kernels::dropout(g, nullptr, random_site(call), dropout_, Info(g).dtype) : g);
    if (b.wants(1)) b.give(1, std::move(g));
  }

 private:
  Tensor add(mortise_call* call, Ref branch, Ref residual) const {
    if (!drops(call, dropout_)) return ops::add(residual, branch);
    const uint32_t a = Info(branch).dtype, r = Info(residual).dtype;
    const uint32_t stream = a == r ? r : statistics_dtype(a == MORTISE_F64 ? a : r);
    return kernels::dropout(branch, residual, random_site(call), dropout_, stream);
  }

  Normalise norm_;
  double dropout_;
};

}  // namespace

const mortise_operator* residual_norm() { return operator_of<ResidualNorm>(); }

}  // namespace mortise::aten
