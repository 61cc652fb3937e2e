// parallel.ddp: every rank has the whole model and its part of each batch; gradients are summed while backward goes on.
#include "../buckets.hpp"

namespace {
using namespace mortise;

struct Ddp : Buckets {
  Ddp() : Buckets(config::integer("bucket_mib"), config::text("unused")) {}
};

const mortise_replicas kObject = {.struct_size = sizeof(mortise_replicas),
                                  .reserved = 0,
                                  .ready = thunk<&Ddp::ready>,
                                  .finish = thunk<&Ddp::finish>,
                                  .layout = thunk<&Ddp::layout>,
                                  .own = nullptr,
                                  .gather = nullptr};
}  // namespace

MORTISE_PLUGIN(Ddp, mortise::provide("replicas", &kObject))
