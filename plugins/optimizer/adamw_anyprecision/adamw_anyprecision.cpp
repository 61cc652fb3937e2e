// AdamW with weights and states in fp32 or bf16 (kernels/adamw_anyprecision), on the host's processor or on a GPU.
#include "kernels/adamw_anyprecision/adamw_anyprecision.h"
#include "kernels/adamw_anyprecision/adamw_anyprecision_cuda.h"
#include "kernels/cuda/optimizer.hpp"

#include <cmath>

#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"

namespace {
using namespace mortise;
using kernels::AnyPrecisionArray, kernels::AnyPrecisionArrays, kernels::AnyPrecisionStep;

uint32_t dtype_of_key(const char* key, std::string_view otherwise = "") {
  const std::string_view name = config::get(key).tag == MORTISE_NONE ? otherwise : config::text(key);
  return name == "bf16" ? MORTISE_BF16 : MORTISE_F32;
}

class AnyPrecision {
 public:
  AnyPrecision()
      : betas_(adamw_betas()), eps_(config::number("eps")), momentum_dtype_(dtype_of_key("momentum_dtype")),
        variance_dtype_(dtype_of_key("variance_dtype")),
        compensation_dtype_(dtype_of_key("compensation_dtype", "bf16")), kahan_(config::flag("kahan_summation")) {
    if (!kahan_ && config::get("compensation_dtype").tag != MORTISE_NONE)
      config::refuse("compensation_dtype", "nothing is compensated", "kahan_summation = true, or leave it out");
  }

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) const {
    if (info->master_dtype != MORTISE_F32 && info->master_dtype != MORTISE_BF16)
      throw Error(MORTISE_E_CONFIG,
                  "optimizer.adamw_anyprecision updates weights in fp32 or bf16; those of " +
                      std::string(view(info->name)) + " are in " + mortise_dtype_of(info->master_dtype)->name,
                  "[precision.half] dtype = \"bf16\"; [optimizer.adamw] updates fp64, [optimizer.adafactor] fp16");
    specs[0] = {MORTISE_STR("exp_avg"), MORTISE_STR("same"), momentum_dtype_, 0, 0.0};
    specs[1] = {MORTISE_STR("exp_avg_sq"), MORTISE_STR("same"), variance_dtype_, 0, 0.0};
    if (kahan_) specs[2] = {MORTISE_STR("compensation"), MORTISE_STR("same"), compensation_dtype_, 0, 0.0};
    *n = kahan_ ? 3 : 2;
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) const {
    if constexpr (MORTISE_HAS_CUDA)
      if (is_on_gpu(device_ledger)) return step_on_gpu(slices, n, *device_ledger);
    const Ledger ledger(device_ledger);
    if (!ledger.apply) return;
    std::vector<Job> jobs;
    for (uint32_t i = 0; i < n; ++i) jobs.push_back(job(slice_at(slices, i), ledger));
    for_pieces(jobs, [](const Job& j, int64_t begin, int64_t end) {
      kernels::anyprecision_update(j.step, j.arrays, begin, end);
    });
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), jobs[i].arrays.copy != nullptr);
  }

 private:
  struct Job {
    AnyPrecisionStep step;
    AnyPrecisionArrays arrays;
    int64_t length;
  };

  void step_on_gpu(const mortise_slice* slices, uint32_t n, const mortise_ledger& ledger) const {
    const auto make = [this](const mortise_slice& s, kernels::CopyOf copy) {
      const Info g(s.grad);
      void* const compensation = kahan_ ? Info(s.states[2]).data : nullptr;
      return kernels::AnyPrecisionSlice{Info(s.master).data,
                                        Info(s.states[0]).data,
                                        Info(s.states[1]).data,
                                        compensation,
                                        g.data,
                                        copy.data,
                                        s.length,
                                        s.group,
                                        static_cast<uint16_t>(g.dtype),
                                        copy.dtype};
    };
    kernels::update_on_gpu(
        slices, n, make, [&](const kernels::AnyPrecisionSlice* some, int64_t count, uint32_t master) {
          const uint32_t compensation = kahan_ ? compensation_dtype_ : uint32_t{MORTISE_NO_DTYPE};
          return kernels::anyprecision_cuda(some, count, {master, momentum_dtype_, variance_dtype_, compensation},
                                            kernels::device_ledger(ledger), betas_, eps_, stream_now());
        });
  }

  static AnyPrecisionArray array(mortise_tensor* t) {
    const Info info(t);
    return {info.data, info.dtype};
  }

  Job job(const mortise_slice& s, const Ledger& ledger) const {
    const Info g(s.grad);
    const auto t = static_cast<double>(ledger.applied + 1);
    const AnyPrecisionStep step{
        ledger.lr[s.group],         ledger.weight_decay[s.group], betas_[0],        betas_[1], eps_,
        1 - std::pow(betas_[0], t), 1 - std::pow(betas_[1], t),   ledger.multiplier};
    return {step,
            {array(s.master), array(s.states[0]), array(s.states[1]), kahan_ ? array(s.states[2]) : AnyPrecisionArray{},
             g.data, g.dtype, bf16_value<uint16_t>(s)},
            s.length};
  }

  std::array<double, 2> betas_;
  double eps_;
  uint32_t momentum_dtype_, variance_dtype_, compensation_dtype_;
  bool kahan_;
};

constexpr mortise_optimizer kAnyPrecision = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE,
                                             thunk<&AnyPrecision::states>, thunk<&AnyPrecision::step>};
}  // namespace

MORTISE_PLUGIN(AnyPrecision, mortise::provide("optimizer", &kAnyPrecision))
