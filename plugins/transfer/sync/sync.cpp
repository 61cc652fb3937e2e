// The call `batch`: a host batch becomes a device batch, field by field, when it is needed. A batch that is there
// already is passed on.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Sync {
 public:
  void batch(mortise_call* call) {
    if (call->n_args < 1 || call->args[0].tag != MORTISE_BATCH || call->n_results < 1)
      throw Error(MORTISE_E_ARGUMENT, "batch takes one batch and gives one");
    mortise_batch* const host = call->args[0].v.b;
    Batch device = Batch::create(host);
    bool moved = false;
    each_field(host, [&](mortise_str name, mortise_tensor* from) {
      Tensor to;
      check(api.batch->to_device(api.host, from, to.put()));
      check(api.batch->set(api.host, device.get(), name, to.get()));
      moved |= to.get() != from;
    });
    if (!moved) device = Batch::share(host);
    call->results[0] = value(device.release());
  }
};
}  // namespace

MORTISE_PLUGIN(Sync, mortise::provide_call<&Sync::batch>("batch"))
