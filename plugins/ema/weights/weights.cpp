// A moving mean of the masters, beside each of them: mean <- mean + (1 - decay) (master - mean) after every step that
// was applied. The first such step copies. Everything is on the device and nobody waits, but for masters in the host's
// memory, where they are updated.
#include <ranges>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

// With a mean.
auto kept_now() {
  return slices_now() | std::views::filter([](const mortise_slice& s) { return s.n_states == 1; });
}

class MeanWeights {
 public:
  void declared(const mortise_event* event) {
    const mortise_param_info& info = info_of(event->param);
    if (!info.trainable) return;
    const uint32_t dtype = info.master_dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32;
    const mortise_state_spec mean = {MORTISE_STR("mean"), MORTISE_STR("copy"), dtype, 0, 0.0};
    check(api.params->keep(api.host, event->param, &mean));
  }

  void commit(const mortise_event*) {
    static const Op lerp("aten::lerp_.Tensor");
    const Tensor weight = new_share();
    Tensor on_host;
    for (const mortise_slice& s : kept_now()) {
      const Info mean(s.states[0]);
      const bool is_elsewhere = mean.device != Info(weight.get()).device;
      if (is_elsewhere && !on_host.get()) {
        on_host = empty(MORTISE_F64, {}, /*on_cpu=*/true);
        ops::copy_(on_host, weight);
      }
      lerp(Ref(s.states[0]), ops::to(Ref(s.master), mean.dtype), ops::to(is_elsewhere ? on_host : weight, mean.dtype));
    }
  }

  // The masters are put aside, and back.
  void evaluate(mortise_call* call, mortise_next* next) {
    if (!evaluates_) return check(api.call->next(api.host, next, call));
    std::vector<Tensor> masters;
    for (const mortise_slice& s : kept_now()) {
      masters.push_back(ops::clone(Ref(s.master)));
      write(s, Ref(s.states[0]));
    }
    const mortise_status status = api.call->next(api.host, next, call);
    size_t i = 0;
    for (const mortise_slice& s : kept_now()) write(s, masters[i++]);
    check(status);
  }

 private:
  // Of the master, in the next mean: float64, 0-dim; 0 where the step was skipped, 1 in the first.
  Tensor new_share() const {
    static const Op equal("aten::eq.Scalar"), maximum("aten::maximum");
    const Tensor applied = ops::to(Ref(ledger_now().applied), MORTISE_F64);
    Tensor share = ops::to(equal(applied, 0), MORTISE_F64);
    Tensor least = empty(MORTISE_F64, {});
    ops::fill_(least, 1 - decay_);
    share = maximum(share, least);
    if (warmup_) share = maximum(share, ops::mul(ops::reciprocal(ops::add(applied, 10.0)), 9.0));
    return ops::mul(share, Ref(ledger_now().verdict));
  }

  static void write(const mortise_slice& s, Ref to_be) {
    ops::copy_(Ref(s.master), to_be);
    check(api.params->publish(api.host, s.param));
  }

  double decay_ = config::number("decay");
  bool warmup_ = config::flag("warmup"), evaluates_ = config::flag("evaluate");
};
}  // namespace

MORTISE_PLUGIN(MeanWeights, mortise::listen<&MeanWeights::declared>("params.declared"),
               mortise::listen<&MeanWeights::commit>("step.commit"), mortise::wrap<&MeanWeights::evaluate>("eval"))
