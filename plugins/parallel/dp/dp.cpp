// parallel.dp: the first rank's model is the model, as of torch.nn.DataParallel. Once backward is over gradients are
// summed there, it alone has the optimizer's states and updates, and what it has updated is sent to the others.
#include "../buckets.hpp"
#include "../sent_masters.hpp"

namespace {
using namespace mortise;

class Dp : public Buckets {
 public:
  Dp() : Buckets(config::integer("bucket_mib"), config::text("unused"), MORTISE_REDUCE) {}

  // Nothing is sent before backward is over.
  void ready(mortise_param*, int32_t, int32_t) {}

  void norm(mortise_tensor* number) {
    run_collective(collective_of(MORTISE_BROADCAST, {}, Tensor::share(number), nullptr));
  }

  void own(const mortise_param_info* info, int64_t, int32_t rank, int64_t* offset, int64_t* length) {
    if (info->axis.len > 0)
      throw Error(MORTISE_E_CONFIG,
                  "the first rank has all of the model, and of " + std::string(view(info->name)) + " ranks along `" +
                      std::string(view(info->axis)) + "` have parts",
                  "parallel.ddp, or parallel.zero");
    *offset = 0;
    *length = rank == 0 ? info->numel : 0;
  }

  void gather(uint32_t) {
    for (const Param& p : params()) sent_.add(p.handle, 0, p.info->numel, 0);
    sent_.send();
  }

 private:
  SentMasters sent_;
};

const mortise_replicas kObject = {.struct_size = sizeof(mortise_replicas),
                                  .reserved = 0,
                                  .ready = thunk<&Dp::ready>,
                                  .finish = thunk<&Dp::finish>,
                                  .layout = thunk<&Dp::layout>,
                                  .own = thunk<&Dp::own>,
                                  .gather = thunk<&Dp::gather>,
                                  .shard = nullptr,
                                  .transient = nullptr,
                                  .need = nullptr,
                                  .written = nullptr,
                                  .norm = thunk<&Dp::norm>};
}  // namespace

MORTISE_PLUGIN(Dp, mortise::provide("replicas", &kObject))
