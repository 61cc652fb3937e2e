// Products of fp32 matrices by the tensor cores of a GPU, which round each factor to 10 bits; sums stay fp32. The
// switch is the process's: it is on within a forward, or all of a step's forwards and backwards, and off after it.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class TF32 {
 public:
  void within(mortise_call* call, mortise_next* next) {
    if (depth_++ == 0) set(1);
    const mortise_status status = api.call->next(api.host, next, call);
    if (--depth_ == 0) set(0);
    check(status);
  }

 private:
  static void set(int on) { check(need(api.device, "mortise.device/0").fast_products(api.host, on)); }
  int depth_ = 0;  // a forward stands within a step
};
}  // namespace

MORTISE_PLUGIN(TF32, mortise::wrap<&TF32::within>("gradients"), mortise::wrap<&TF32::within>("forward"))
