// SGD on the host's processor, in the order of operations of torch.optim.SGD:
//
//   g = multiplier * grad + weight_decay * p      b = momentum * b + g
//   p = p - lr * (nesterov ? g + momentum * b : b)
//
// torch sets b = g in the first step; from b = 0 that is the same.
// Floor: 12 bytes a parameter in fp32 (read p, g; write p), 20 with momentum. Plain SSE2 reaches it: no root, no
// division.
#include "kernels/bf16/bf16.h"

#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;
using kernels::BF16;

struct Job {
  double lr, weight_decay, momentum, multiplier;
  bool nesterov;
  void *p, *b;  // b is null without momentum
  const void* g;
  BF16* copy;  // of p; may be null
  int64_t length;
  void (*run)(const Job&, int64_t, int64_t);
};

template <class T, class G, bool kMomentum, bool kNesterov>
void update(const Job& j, int64_t begin, int64_t end) {
  T* __restrict p = static_cast<T*>(j.p), * __restrict b = static_cast<T*>(j.b);
  const G* __restrict grad = static_cast<const G*>(j.g);
  const T multiplier = static_cast<T>(j.multiplier), weight_decay = static_cast<T>(j.weight_decay);
  const T momentum = static_cast<T>(j.momentum), rate = static_cast<T>(-j.lr);
  for (int64_t i = begin; i < end; ++i) {
    T g = static_cast<T>(grad[i]) * multiplier + weight_decay * p[i];
    if constexpr (kMomentum) {
      b[i] = momentum * b[i] + g;
      g = kNesterov ? g + momentum * b[i] : b[i];
    }
    p[i] += rate * g;
  }
  // While the piece is still in the cache.
  if (j.copy)
    for (int64_t i = begin; i < end; ++i) j.copy[i] = BF16(static_cast<float>(p[i]));
}

template <class T, class G>
void update(const Job& j, int64_t begin, int64_t end) {
  if (!j.b) return update<T, G, false, false>(j, begin, end);
  j.nesterov ? update<T, G, true, true>(j, begin, end) : update<T, G, true, false>(j, begin, end);
}
template <class T>
auto update_for(uint32_t grad_dtype) -> void (*)(const Job&, int64_t, int64_t) {
  switch (grad_dtype) {
    case MORTISE_F32: return update<T, float>;
    case MORTISE_F64: return update<T, double>;
    case MORTISE_BF16: return update<T, BF16>;
    default: throw Error(MORTISE_E_UNSUPPORTED, "optimizer.sgd reads gradients in fp32, fp64 and bf16");
  }
}

class SGD {
 public:
  SGD() : momentum_(config::number("momentum")), nesterov_(config::flag("nesterov")) {
    if (nesterov_ && momentum_ == 0)
      config::refuse("nesterov", "it looks ahead along the momentum, and there is none", "momentum = 0.9");
  }

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) {
    if (info->master_dtype != MORTISE_F32 && info->master_dtype != MORTISE_F64)
      throw Error(MORTISE_E_CONFIG,
                  "optimizer.sgd updates weights in fp32 or fp64; those of " + std::string(view(info->name)) +
                      " are in another dtype",
                  "[precision.bf16], which keeps fp32 weights beside bf16 ones; weights in bf16 alone are updated by "
                  "[optimizer.adamw_anyprecision], in bf16 or fp16 by [optimizer.adafactor]");
    *n = momentum_ != 0;
    if (*n) specs[0] = {MORTISE_STR("momentum_buffer"), MORTISE_STR("same"), info->master_dtype, 0, 0.0};
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) {
    const Ledger ledger(device_ledger);
    if (!ledger.apply) return;
    std::vector<Job> jobs;
    for (uint32_t i = 0; i < n; ++i) jobs.push_back(job(slice_at(slices, i), ledger));
    for_pieces(jobs, [](const Job& j, int64_t begin, int64_t end) { j.run(j, begin, end); });
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), jobs[i].copy != nullptr);
  }

 private:
  Job job(const mortise_slice& s, const Ledger& ledger) const {
    const Info p(s.master), g(s.grad);
    return {ledger.lr[s.group],
            ledger.weight_decay[s.group],
            momentum_,
            ledger.multiplier,
            nesterov_,
            p.data,
            s.n_states ? Info(s.states[0]).data : nullptr,
            g.data,
            bf16_value<BF16>(s),
            s.length,
            p.dtype == MORTISE_F64 ? update_for<double>(g.dtype) : update_for<float>(g.dtype)};
  }

  double momentum_;
  bool nesterov_;
};

constexpr mortise_optimizer kSGD = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&SGD::states>,
                                    thunk<&SGD::step>};
}  // namespace

MORTISE_PLUGIN(SGD, mortise::provide("optimizer", &kSGD))
