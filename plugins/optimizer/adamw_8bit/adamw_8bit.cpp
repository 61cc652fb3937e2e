// AdamW with states in 8 bits (kernels/adamw_8bit), on the host's processor or on a GPU.
#include "kernels/adamw_8bit/adamw_8bit.h"
#include "kernels/adamw_8bit/adamw_8bit_cuda.h"
#include "kernels/cuda/ledger.hpp"

#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"

namespace {
using namespace mortise;
using kernels::AdamW8BitArrays, kernels::AdamWStep;

class AdamW8Bit {
 public:
  AdamW8Bit() : betas_(adamw_betas()), eps_(config::number("eps")), min_8bit_size_(config::integer("min_8bit_size")) {}

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) const {
    if (info->master_dtype == MORTISE_F64)
      throw Error(MORTISE_E_CONFIG,
                  "optimizer.adamw_8bit updates weights in fp32, bf16 or fp16; those of " +
                      std::string(view(info->name)) + " are in fp64",
                  "[optimizer.adamw]");
    // By the whole parameter, so that each of its slices has the same.
    const bool wide = info->numel < min_8bit_size_ || view(info->role) == "embedding";
    const uint32_t dtype = wide ? MORTISE_F32 : MORTISE_U8;
    specs[0] = {MORTISE_STR("exp_avg"), MORTISE_STR("same"), dtype, 0, wide ? 0.0 : kernels::kZeroOfSignedMap};
    specs[1] = {MORTISE_STR("exp_avg_sq"), MORTISE_STR("same"), dtype, 0, 0.0};
    specs[2] = {MORTISE_STR("exp_avg_absmax"), MORTISE_STR("blocks:256"), MORTISE_F32, 0, 0.0};
    specs[3] = {MORTISE_STR("exp_avg_sq_absmax"), MORTISE_STR("blocks:256"), MORTISE_F32, 0, 0.0};
    *n = wide ? 2 : 4;
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) const {
    if constexpr (MORTISE_HAS_CUDA)
      if (is_on_gpu(device_ledger)) return step_on_gpu(slices, n, *device_ledger);
    const Ledger ledger(device_ledger);
    if (!ledger.apply) return;
    std::vector<Job> jobs;
    for (uint32_t i = 0; i < n; ++i) jobs.push_back(job(slice_at(slices, i), ledger));
    for_pieces(jobs, [](const Job& j, int64_t begin, int64_t end) {
      if (j.arrays.m) kernels::adamw_8bit_update(j.step, j.arrays, begin, end);
      else kernels::adamw_32bit_update(j.step, j.arrays, j.wide, begin, end);
    });
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), jobs[i].arrays.copy != nullptr);
  }

 private:
  struct Job {
    AdamWStep step;
    AdamW8BitArrays arrays;
    std::array<float*, 2> wide;  // the states, if they are in fp32
    int64_t length;
  };

  void step_on_gpu(const mortise_slice* slices, uint32_t n, const mortise_ledger& ledger) const {
    std::vector<kernels::AdamW8BitSlice> narrow, wide;  // with 8-bit states, with fp32 states
    for (uint32_t i = 0; i < n; ++i) {
      const mortise_slice& s = slice_at(slices, i);
      (s.n_states == 2 ? wide : narrow).push_back(slice_on_gpu(s));
    }
    const kernels::DeviceLedger numbers = kernels::device_ledger(ledger);
    const auto update = [&](const auto& some, auto launcher) {
      const auto count = static_cast<int64_t>(some.size());
      kernels::check_launch(launcher(some.data(), count, numbers, betas_, eps_, stream_now()));
    };
    update(narrow, kernels::adamw_8bit_cuda);
    update(wide, kernels::adamw_32bit_cuda);
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), copy_of(slice_at(slices, i)) != nullptr);
  }

  static kernels::AdamW8BitSlice slice_on_gpu(const mortise_slice& s) {
    const auto state = [&](uint32_t i) { return i < s.n_states ? Info(s.states[i]).data : nullptr; };
    const Info p(s.master), g(s.grad), value(s.value ? s.value : s.master);
    if (s.n_states > 2) check_cut(s);
    return {p.data,
            state(0),
            state(1),
            static_cast<float*>(state(2)),
            static_cast<float*>(state(3)),
            g.data,
            copy_of(s),
            s.length,
            s.group,
            static_cast<uint8_t>(p.dtype),
            static_cast<uint8_t>(g.dtype),
            static_cast<uint8_t>(value.dtype)};
  }

  // Where the value's bits go in the same pass on a GPU. That of a master in 16 bits is cast by the core, from what was
  // rounded.
  static void* copy_of(const mortise_slice& s) {
    if (!s.value || Info(s.master).dtype != MORTISE_F32) return nullptr;
    const Info value(s.value);
    return value.dtype == MORTISE_BF16 || value.dtype == MORTISE_F16 ? value.data : nullptr;
  }

  Job job(const mortise_slice& s, const Ledger& ledger) const {
    const Info p(s.master), g(s.grad), m(s.states[0]), v(s.states[1]);
    const AdamWStep step = kernels::adamw_step(ledger.lr[s.group], ledger.weight_decay[s.group], betas_, eps_,
                                               ledger.applied + 1, ledger.multiplier);
    AdamW8BitArrays a{.master = p.dtype, .grad = g.dtype, .p = p.data, .g = g.data};
    if (p.dtype == MORTISE_F32) a.copy = bf16_value<uint16_t>(s);
    if (s.n_states == 2) return {step, a, {m.as<float>(), v.as<float>()}, s.length};
    check_cut(s);
    a.m = m.as<uint8_t>();
    a.v = v.as<uint8_t>();
    a.m_scale = Info(s.states[2]).as<float>();
    a.v_scale = Info(s.states[3]).as<float>();
    return {step, a, {}, s.length};
  }

  // What plugin.toml says as `cut`. A slice that is cut elsewhere would begin with the rest of a block, and each of its
  // elements would be read with the scale of another.
  static void check_cut(const mortise_slice& s) {
    const bool ends_inside = s.length % kernels::kAdamW8BitBlock != 0 && s.offset + s.length < s.info->numel;
    if (s.offset % kernels::kAdamW8BitBlock != 0 || ends_inside)
      throw Error(MORTISE_E_SHAPE, "a slice of " + std::string(view(s.info->name)) + ", elements " +
                                       std::to_string(s.offset) + " to " + std::to_string(s.offset + s.length) +
                                       ", is not cut at blocks of 256");
  }

  std::array<double, 2> betas_;
  double eps_;
  int64_t min_8bit_size_;
};

constexpr mortise_optimizer kAdamW8Bit = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&AdamW8Bit::states>,
                                          thunk<&AdamW8Bit::step>};
}  // namespace

MORTISE_PLUGIN(AdamW8Bit, mortise::provide("optimizer", &kAdamW8Bit))
