// Gives back to the device what LibTorch's allocator keeps for later. At step.end: the activations of every micro-batch
// are gone, and the next step has not begun; between micro-batches the same blocks would be asked for again at once.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class EmptyCache {
 public:
  EmptyCache() : every_(config::integer("every")) { need(api.device, "mortise.device/0"); }

  // By the number of the step, so that a resumed run does it after the same ones.
  void step_end(const mortise_event*) {
    if (clock_now().attempted % every_ != 0) return;
    int64_t freed = 0;
    check(api.device->trim(api.host, &freed));
  }

 private:
  const int64_t every_;
};
}  // namespace

MORTISE_PLUGIN(EmptyCache, mortise::listen<&EmptyCache::step_end>("step.end"))
