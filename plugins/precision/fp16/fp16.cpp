// Mixed precision in fp16. Its smallest gradients would be 0, so the loss is multiplied by a factor: lowered when a
// gradient overflows, which skips the step, and raised after many steps without. The rule is torch's own, one operator
// on the device.
#include <algorithm>

#include "mortise/cpp/mixed.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

class FP16 : public Mixed<MORTISE_F16> {
 public:
  FP16()
      : initial_(config::number("initial")), growth_(config::number("growth")), backoff_(config::number("backoff")),
        least_(config::number("least")), interval_(config::integer("interval")) {
    if (least_ > initial_)
      config::refuse("least", "the factor begins below it", "least = 1.0, or an `initial` that is no smaller");
    check(api.state->keep(api.host, &kGoodSteps));
  }

  void begin(const mortise_event*) {
    scale_ = full(MORTISE_F32, initial_);
    // torch raises the factor when the count is equal to `interval`, which may be smaller now.
    good_steps_ = full(MORTISE_I32, static_cast<double>(std::min(loaded_, interval_ - 1)));
    if (is_restored_) ops::copy_(scale_, Ref(ledger_now().scale));
    else check(api.loop->set_scale(api.host, scale_.get()));
  }

  void verdict(const mortise_event*) {
    Tensor norm;
    check(api.grads->norm(api.host, norm.put()));
    const Tensor is_finite = ops::isfinite(norm);
    check(api.loop->vote(api.host, is_finite.get()));
    overflowed_ = ops::to(ops::logical_not(is_finite), MORTISE_F32);
  }

  void commit(const mortise_event*) {
    static const Op update("aten::_amp_update_scale_"), clamp_min("aten::clamp_min_");
    update(scale_, good_steps_, overflowed_, growth_, backoff_, interval_);
    clamp_min(scale_, least_);
    check(api.loop->set_scale(api.host, scale_.get()));
    check(api.loop->report(api.host, MORTISE_STR("scale"), scale_.get(), {}));
  }

  void save(const mortise_sink* sink) {
    int32_t n = 0;
    check(api.tensor->read(api.host, good_steps_.get(), &n, sizeof n));
    save_integer(sink, n);
  }
  void load(uint32_t, mortise_str text) {
    loaded_ = load_integer(text, "the count of precision.fp16");
    is_restored_ = true;
  }

 private:
  static Tensor full(uint32_t dtype, double number) {
    Tensor t = empty(dtype, {});
    ops::fill_(t, number);
    return t;
  }

  static const mortise_blob kGoodSteps;
  double initial_, growth_, backoff_, least_;
  int64_t interval_, loaded_ = 0;
  bool is_restored_ = false;
  Tensor scale_, good_steps_, overflowed_;  // fp32, int32, fp32; 0-dim, on the device
};
const mortise_blob FP16::kGoodSteps = {sizeof(mortise_blob), 1, MORTISE_STR("good_steps"), thunk<&FP16::save>,
                                       thunk<&FP16::load>};
}  // namespace

MORTISE_PLUGIN(FP16, mortise::listen<&FP16::declared>("params.declared"), mortise::wrap<&FP16::forward>("forward"),
               mortise::listen<&FP16::begin>("run.begin"), mortise::listen<&FP16::verdict>("step.verdict"),
               mortise::listen<&FP16::commit>("step.commit"))
