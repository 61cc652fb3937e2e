// Says of each parameter that it is updated on the host; the core has the rest.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class OffloadOptimizer {
 public:
  void declared(const mortise_event* event) {
    check(api.params->set(api.host, event->param, MORTISE_STR("update_on_host"), value(true)));
  }
};
}  // namespace

MORTISE_PLUGIN(OffloadOptimizer, mortise::listen<&OffloadOptimizer::declared>("params.declared"))
