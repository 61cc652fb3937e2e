// Mixed precision without a loss scale: bf16 has the range of fp32.
#include "mortise/cpp/mixed.hpp"

namespace {
using namespace mortise;

class BF16 : public Mixed<MORTISE_BF16> {
 public:
  BF16() : gradients_too_(config::text("gradients") == "bf16") {}

  void declared(const mortise_event* event) const {
    Mixed::declared(event);
    const std::string_view role = view(info_of(event->param).role);
    if (gradients_too_ && (role == "matrix" || role == "embedding")) set(event->param, "grad_dtype", MORTISE_BF16);
  }

 private:
  bool gradients_too_;
};
}  // namespace

MORTISE_PLUGIN(BF16, mortise::listen<&BF16::declared>("params.declared"), mortise::wrap<&BF16::forward>("forward"))
