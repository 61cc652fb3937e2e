// AdamW: states in the master's dtype, one pass over memory (kernels/adamw), on the host's processor or on a GPU.
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_cuda.h"
#include "kernels/cuda/optimizer.hpp"

#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;
using kernels::AdamWArrays, kernels::AdamWStep;

constexpr const char* kId = "optimizer.adamw";

class AdamW {
 public:
  AdamW() : betas_(adamw_betas()), eps_(config::number("eps")) {}

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) {
    kernels::must_be_wide(info, kId);
    specs[0] = {MORTISE_STR("exp_avg"), MORTISE_STR("same"), info->master_dtype, 0, 0.0};
    specs[1] = {MORTISE_STR("exp_avg_sq"), MORTISE_STR("same"), info->master_dtype, 0, 0.0};
    *n = 2;
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) {
    if constexpr (MORTISE_HAS_CUDA)
      if (is_on_gpu(device_ledger)) return step_on_gpu(slices, n, *device_ledger);
    const Ledger ledger(device_ledger);
    if (!ledger.apply) return;
    std::vector<Job> jobs;
    for (uint32_t i = 0; i < n; ++i) jobs.push_back(job(slice_at(slices, i), ledger));
    for_pieces(jobs,
               [](const Job& j, int64_t begin, int64_t end) { kernels::adamw_update(j.step, j.arrays, begin, end); });
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), jobs[i].arrays.copy != nullptr);
  }

 private:
  struct Job {
    AdamWStep step;
    AdamWArrays arrays;
    int64_t length;
  };

  void step_on_gpu(const mortise_slice* slices, uint32_t n, const mortise_ledger& ledger) const {
    const auto make = [](const mortise_slice& s, kernels::CopyOf copy) {
      const Info g(s.grad);
      kernels::check_gradient(g, s, kId);
      return kernels::AdamWSlice{Info(s.master).data,
                                 Info(s.states[0]).data,
                                 Info(s.states[1]).data,
                                 g.data,
                                 copy.data,
                                 s.length,
                                 s.group,
                                 static_cast<uint16_t>(g.dtype),
                                 copy.dtype};
    };
    kernels::update_on_gpu(slices, n, make, [&](const kernels::AdamWSlice* some, int64_t count, uint32_t master) {
      return kernels::adamw_cuda(some, count, master, kernels::device_ledger(ledger), betas_, eps_, stream_now());
    });
  }

  Job job(const mortise_slice& s, const Ledger& ledger) const {
    const Info p(s.master), g(s.grad), m(s.states[0]), v(s.states[1]);
    kernels::check_gradient(g, s, kId);
    const AdamWStep step = kernels::adamw_step(ledger.lr[s.group], ledger.weight_decay[s.group], betas_, eps_,
                                               ledger.applied + 1, ledger.multiplier);
    return {step, {p.dtype, g.dtype, p.data, m.data, v.data, g.data, bf16_value<uint16_t>(s)}, s.length};
  }

  std::array<double, 2> betas_;
  double eps_;
};

constexpr mortise_optimizer kAdamW = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&AdamW::states>,
                                      thunk<&AdamW::step>};
}  // namespace

MORTISE_PLUGIN(AdamW, mortise::provide("optimizer", &kAdamW))
