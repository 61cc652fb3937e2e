// Half a cosine from 1 to `final`.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

struct Cosine {
  double final = config::number("final");

  void factor(double progress, double* multiplier) {
    const double share =
        0.5 * (1.0 + std::cos(std::numbers::pi * std::clamp(progress, 0.0, 1.0)));  // 1 to 0, exact at both ends
    *multiplier = share + (1.0 - share) * final;
  }
};

const mortise_schedule kObject = {sizeof(mortise_schedule), 0, thunk<&Cosine::factor>};
}  // namespace

MORTISE_PLUGIN(Cosine, mortise::provide("schedule", &kObject))
