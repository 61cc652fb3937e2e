// Normal noise onto the gradient of a whole step, as it is before its norm is taken.
#include "kernels/noise/noise.h"

#include <ranges>

#include "kernels/cuda/ledger.hpp"
#include "kernels/noise/element.h"
#include "kernels/noise/noise_cuda.h"
#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

auto gradients_now() { return slices_now() | std::views::filter(&mortise_slice::grad); }

class Noise {
 public:
  void gradients(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    if constexpr (MORTISE_HAS_CUDA)
      if (is_on_gpu(&ledger_now())) return add_on_gpu();
    const double scale = Info(ledger_now().scale).as<double>()[0];
    const double deviation = kernels::noise_deviation(eta_, gamma_, scale, clock_now().attempted);
    auto slices = gradients_now();
    std::vector<Job> jobs;
    for (const mortise_slice& s : slices) jobs.push_back(job(s, deviation));
    for_pieces(jobs, [](const Job& j, int64_t begin, int64_t end) {
      kernels::add_noise(j.place, j.deviation, j.dtype, j.grad, j.first, begin, end);
    });
    for (const mortise_slice& s : slices) api.tensor->written(api.host, s.grad);
  }

 private:
  struct Job {
    mortise_philox place;
    double deviation;
    uint32_t dtype;
    void* grad;
    int64_t first, length;
  };

  static mortise_philox place_of(const mortise_slice& s) {
    mortise_philox place;
    check(api.random->stream(api.host, s.info->name, &place));
    return place;
  }
  static Job job(const mortise_slice& s, double deviation) {
    const Info grad(s.grad);
    return {place_of(s), deviation, grad.dtype, grad.data, s.offset, s.length};
  }

  // The kernel reads step and scale: a recorded step that is played again has others.
  void add_on_gpu() const {
    auto slices = gradients_now();
    std::vector<kernels::NoiseSlice> all;
    for (const mortise_slice& s : slices) {
      const Info grad(s.grad);
      all.push_back({grad.data, s.length, s.offset, place_of(s), grad.dtype});
    }
    const kernels::NoiseOfStep noise = {Info(ledger_now().scale).as<const double>(), step_on_device(), eta_, gamma_};
    kernels::check_launch(kernels::add_noise_cuda(all.data(), static_cast<int64_t>(all.size()), noise, stream_now()));
    for (const mortise_slice& s : slices) api.tensor->written(api.host, s.grad);
  }

  double eta_ = config::number("eta"), gamma_ = config::number("gamma");
};
}  // namespace

MORTISE_PLUGIN(Noise, mortise::wrap<&Noise::gradients>("gradients"))
