// Products of fp32 matrices by the tensor cores of a GPU, which round each factor to 10 bits; sums stay fp32.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class TF32 {
 public:
  void forward(mortise_call* call, mortise_next* next) {
    if (!is_on_) check(need(api.device, "mortise.device/0").fast_products(api.host, 1));
    is_on_ = true;
    check(api.call->next(api.host, next, call));
  }

 private:
  bool is_on_ = false;  // for the process, backward too
};
}  // namespace

MORTISE_PLUGIN(TF32, mortise::wrap<&TF32::forward>("forward"))
