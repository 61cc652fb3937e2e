// SGD: one pass over memory (kernels/sgd), on the host's processor or on a GPU.
#include "kernels/sgd/sgd.h"
#include "kernels/cuda/optimizer.hpp"
#include "kernels/sgd/sgd_cuda.h"

#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

constexpr const char* kId = "optimizer.sgd";

class SGD {
 public:
  SGD() : momentum_(config::number("momentum")), nesterov_(config::flag("nesterov")) {
    if (nesterov_ && momentum_ == 0)
      config::refuse("nesterov", "it looks ahead along the momentum, and there is none", "momentum = 0.9");
  }

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) {
    kernels::must_be_wide(info, kId);
    *n = momentum_ != 0;
    if (*n) specs[0] = {MORTISE_STR("momentum_buffer"), MORTISE_STR("same"), info->master_dtype, 0, 0.0};
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) {
    if constexpr (MORTISE_HAS_CUDA)
      if (is_on_gpu(device_ledger)) return step_on_gpu(slices, n, *device_ledger);
    const Ledger ledger(device_ledger);
    if (!ledger.apply) return;
    std::vector<Job> jobs;
    for (uint32_t i = 0; i < n; ++i) jobs.push_back(job(slice_at(slices, i), ledger));
    for_pieces(jobs,
               [](const Job& j, int64_t begin, int64_t end) { kernels::sgd_update(j.step, j.arrays, begin, end); });
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), jobs[i].arrays.copy != nullptr);
  }

 private:
  struct Job {
    kernels::SGDStep step;
    kernels::SGDArrays arrays;
    int64_t length;
  };

  void step_on_gpu(const mortise_slice* slices, uint32_t n, const mortise_ledger& ledger) const {
    const auto make = [](const mortise_slice& s, kernels::CopyOf copy) {
      const Info g(s.grad);
      kernels::check_gradient(g, s, kId);
      return kernels::SGDSlice{
          Info(s.master).data, buffer(s), g.data, copy.data, s.length, s.group, static_cast<uint16_t>(g.dtype),
          copy.dtype};
    };
    kernels::update_on_gpu(slices, n, make, [&](const kernels::SGDSlice* some, int64_t count, uint32_t master) {
      return kernels::sgd_cuda(some, count, master, kernels::device_ledger(ledger), momentum_, nesterov_, stream_now());
    });
  }

  static void* buffer(const mortise_slice& s) { return s.n_states ? Info(s.states[0]).data : nullptr; }

  Job job(const mortise_slice& s, const Ledger& ledger) const {
    const Info p(s.master), g(s.grad);
    kernels::check_gradient(g, s, kId);
    return {{ledger.lr[s.group], ledger.weight_decay[s.group], momentum_, ledger.multiplier, nesterov_},
            {p.dtype, g.dtype, p.data, buffer(s), g.data, bf16_value<uint16_t>(s)},
            s.length};
  }

  double momentum_;
  bool nesterov_;
};

constexpr mortise_optimizer kSGD = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&SGD::states>,
                                    thunk<&SGD::step>};
}  // namespace

MORTISE_PLUGIN(SGD, mortise::provide("optimizer", &kSGD))
