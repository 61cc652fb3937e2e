// A factor into the multiplier, on the device: nobody waits, and no gradient is written. The optimizer reads them
// through the multiplier.
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Clip {
 public:
  Clip() : most_(config::number("norm")) {}

  void transform(const mortise_event*) {
    Tensor norm;
    check(api.grads->norm(api.host, norm.put()));
    const Tensor share = ops::mul(ops::reciprocal(ops::add(norm, 1e-6)), most_);
    check(api.loop->multiply(api.host, ops::clamp_max(share, 1.0).get()));
  }

 private:
  double most_;
};
}  // namespace

MORTISE_PLUGIN(Clip, mortise::listen<&Clip::transform>("grad.transform"))
