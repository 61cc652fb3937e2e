// A straight line from 1 to `final`.
#include <algorithm>

#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

struct Linear {
  double final = config::number("final");

  void factor(double progress, double* multiplier) {
    progress = std::clamp(progress, 0.0, 1.0);
    *multiplier = (1.0 - progress) + progress * final;  // exact at both ends
  }
};

const mortise_schedule kObject = {sizeof(mortise_schedule), 0, thunk<&Linear::factor>};
}  // namespace

MORTISE_PLUGIN(Linear, mortise::provide("schedule", &kObject))
