// Gradients that overflow in the steps that a comparison chose, whatever the weights are.
#include <algorithm>
#include <limits>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Overflow {
 public:
  void gradients(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    const auto step = static_cast<double>(clock_now().attempted);
    if (std::ranges::find(steps_, step) == steps_.end()) return;
    for (const mortise_slice& s : slices_now())
      if (s.grad) return ops::fill_(Ref(s.grad), std::numeric_limits<double>::infinity());
  }

 private:
  std::span<const double> steps_ = config::numbers("steps");
};
}  // namespace

MORTISE_PLUGIN(Overflow, mortise::wrap<&Overflow::gradients>("gradients"))
