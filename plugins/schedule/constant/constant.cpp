// The peak rate, always.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

struct Constant {
  void factor(double, double* multiplier) { *multiplier = 1.0; }
};

const mortise_schedule kObject = {sizeof(mortise_schedule), 0, thunk<&Constant::factor>};
}  // namespace

MORTISE_PLUGIN(Constant, mortise::provide("schedule", &kObject))
