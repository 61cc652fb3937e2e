// GEMMs and attention in fp32, whatever dtype the weights are stored in.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class FP32 {
 public:
  void forward(mortise_call* call, mortise_next* next) {
    call->compute_dtype = MORTISE_F32;
    check(api.call->next(api.host, next, call));
  }
};
}  // namespace

MORTISE_PLUGIN(FP32, mortise::wrap<&FP32::forward>("forward"))
