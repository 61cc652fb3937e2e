// The whole model in half precision: weights, masters and gradients are stored in one dtype of two bytes, and computed
// with. Nothing wider is kept; what is summed in fp32 (norms, softmax, loss) is the operators' choice.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Half {
 public:
  Half() : dtype_(config::text("dtype") == "fp16" ? MORTISE_F16 : MORTISE_BF16) {}

  void declared(const mortise_event* event) const {
    for (const std::string_view field : {"value_dtype", "master_dtype", "grad_dtype"})
      check(api.params->set(api.host, event->param, str(field), dtype_value(dtype_)));
  }

  void forward(mortise_call* call, mortise_next* next) const {
    call->compute_dtype = dtype_;
    check(api.call->next(api.host, next, call));
  }

 private:
  uint32_t dtype_;
};
}  // namespace

MORTISE_PLUGIN(Half, mortise::listen<&Half::declared>("params.declared"), mortise::wrap<&Half::forward>("forward"))
