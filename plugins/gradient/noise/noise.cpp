// Normal noise onto the gradient of a whole step, as it is before its norm is taken.
#include <cmath>

#include "kernels/noise/noise.h"
#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Noise {
 public:
  void gradients(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    const double steps = static_cast<double>(clock_now().attempted);
    const double scale = Info(ledger_now().scale).as<double>()[0];  // gradients in memory are the true ones times this
    const double deviation = scale * std::sqrt(eta_ / std::pow(1 + steps, gamma_));
    auto slices = slices_now() | std::views::filter(&mortise_slice::grad);
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

  static Job job(const mortise_slice& s, double deviation) {
    const Info grad(s.grad);
    if (grad.device != MORTISE_CPU)
      throw Error(MORTISE_E_UNSUPPORTED, "gradient.noise works on the host's processor", "[device.cpu]");
    Job j = {{}, deviation, grad.dtype, grad.data, s.offset, s.length};
    check(api.random->stream(api.host, s.info->name, &j.place));
    return j;
  }

  double eta_ = config::number("eta"), gamma_ = config::number("gamma");
};
}  // namespace

MORTISE_PLUGIN(Noise, mortise::wrap<&Noise::gradients>("gradients"))
