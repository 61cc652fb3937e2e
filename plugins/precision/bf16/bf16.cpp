// Mixed precision without a loss scale: bf16 has the range of fp32. What a GEMM reads is bf16, cast once a step from
// fp32 masters; norms, softmax and the loss stay in fp32 (the operators see to that), and so do gradients.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class BF16 {
 public:
  void declared(const mortise_event* event) {
    if (view(info_of(event->param).role) != "matrix") return;
    set(event->param, "value_dtype", MORTISE_BF16);
    set(event->param, "master_dtype", MORTISE_F32);
    set(event->param, "grad_dtype", MORTISE_F32);
  }

  void forward(mortise_call* call, mortise_next* next) {
    call->compute_dtype = MORTISE_BF16;
    check(api.call->next(api.host, next, call));
  }

 private:
  static void set(mortise_param* p, std::string_view field, uint32_t dtype) {
    check(api.params->set(api.host, p, str(field), dtype_value(dtype)));
  }
};
}  // namespace

MORTISE_PLUGIN(BF16, mortise::listen<&BF16::declared>("params.declared"), mortise::wrap<&BF16::forward>("forward"))
