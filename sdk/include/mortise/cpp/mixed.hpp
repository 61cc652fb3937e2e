// Mixed precision, whatever the narrow type: what a GEMM reads is narrow, cast once a step from fp32 masters; norms,
// softmax and the loss stay in fp32 (the operators see to that), and so do gradients of parameters, unless whoever
// derives from this says more.
#pragma once
#include "mortise/cpp/plugin.hpp"

namespace mortise {

template <uint32_t kDtype>
class Mixed {
 public:
  void declared(const mortise_event* event) const {
    if (view(info_of(event->param).role) != "matrix") return;
    set(event->param, "value_dtype", kDtype);
    set(event->param, "master_dtype", MORTISE_F32);
    set(event->param, "grad_dtype", MORTISE_F32);
  }

  void forward(mortise_call* call, mortise_next* next) const {
    call->compute_dtype = kDtype;
    check(api.call->next(api.host, next, call));
  }

 protected:
  static void set(mortise_param* p, std::string_view field, uint32_t dtype) {
    check(api.params->set(api.host, p, str(field), dtype_value(dtype)));
  }
};

}  // namespace mortise
