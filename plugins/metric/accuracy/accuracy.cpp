// The share of labels that the model finds likeliest, as a term of weight 0: it is summed and divided as the loss is,
// over micro-batches and over ranks.
#include "mortise/cpp/call.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Accuracy {
 public:
  Accuracy() : in_training_(config::flag("in_training")) {}

  // Of one label a sample no unit of the data says how many there are: "samples" has those without one too.
  void load(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    mortise_batch* batch = call->results[0].tag == MORTISE_BATCH ? call->results[0].v.b : nullptr;
    const Tensor labels = measures(*call) && batch ? field(batch, "labels") : Tensor();
    if (!labels || Info(labels).rank != 1) return;
    static const Op differ("aten::ne.Scalar");
    float n = 0;  // exact: see README
    check(api.tensor->read(api.host, ops::sum(ops::to(differ(labels, kNoLabel), MORTISE_F32)).get(), &n, sizeof n));
    check(api.batch->set_count(api.host, batch, kLabels, static_cast<int64_t>(n)));
  }

  void forward(mortise_call* call, mortise_next* next) {
    const Tensor labels = measures(*call) ? field(call->batch, "labels") : Tensor();
    if (!labels) return check(api.call->next(api.host, next, call));
    const Tensor logits = run_for_logits(call, next);
    if (!logits) throw Error(MORTISE_E_UNSUPPORTED, "the model gives no logits as its second result");
    const Info scores(logits), wanted(labels);
    if (scores.rank != wanted.rank + 1)
      throw Error(MORTISE_E_SHAPE, "logits of " + std::to_string(scores.rank) + " dimensions over labels of " +
                                       std::to_string(wanted.rank) + "; one more is wanted");
    static const Op argmax("aten::argmax"), equal("aten::eq.Tensor");
    const Tensor hits = ops::sum(ops::to(equal(argmax(logits, int64_t{-1}, false), labels), MORTISE_F32));
    const mortise_str unit = wanted.rank == 1 ? kLabels : MORTISE_STR("tokens");
    check(api.loop->term(api.host, MORTISE_STR("accuracy"), hits.get(), unit, 0));
  }

 private:
  static constexpr int64_t kNoLabel = -100;
  static constexpr mortise_str kLabels = MORTISE_STR("metric.accuracy");  // the unit, counted here alone

  bool measures(const mortise_call& call) const {
    return call.mode == MORTISE_EVAL || (call.mode == MORTISE_TRAIN && in_training_);
  }

  bool in_training_;
};
}  // namespace

MORTISE_PLUGIN(Accuracy, mortise::wrap<&Accuracy::load>("load"), mortise::wrap<&Accuracy::forward>("forward"))
