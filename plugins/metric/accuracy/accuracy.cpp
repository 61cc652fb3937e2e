// The share of labels that the model finds likeliest, as a term of weight 0: it is summed and divided as the loss is,
// over micro-batches and, later, over ranks.
#include "mortise/cpp/call.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Accuracy {
 public:
  Accuracy() : in_training_(config::flag("in_training")) {}

  void forward(mortise_call* call, mortise_next* next) {
    const bool measures = call->mode == MORTISE_EVAL || (call->mode == MORTISE_TRAIN && in_training_);
    const Tensor labels = measures ? field(call->batch, "labels") : Tensor();
    if (!labels) return check(api.call->next(api.host, next, call));
    const Tensor logits = run_for_logits(call, next);
    if (!logits) throw Error(MORTISE_E_UNSUPPORTED, "the model gives no logits as its second result");
    const Info scores(logits), wanted(labels);
    if (scores.rank != wanted.rank + 1)
      throw Error(MORTISE_E_SHAPE, "logits of " + std::to_string(scores.rank) + " dimensions over labels of " +
                                       std::to_string(wanted.rank) + "; one more is wanted");
    static const Op argmax("aten::argmax"), equal("aten::eq.Tensor");
    const Tensor hits = ops::sum(ops::to(equal(argmax(logits, int64_t{-1}, false), labels), MORTISE_F32));
    const mortise_str unit = wanted.rank == 1 ? MORTISE_STR("samples") : MORTISE_STR("tokens");  // one label a sample
    check(api.loop->term(api.host, MORTISE_STR("accuracy"), hits.get(), unit, 0));
  }

 private:
  bool in_training_;
};
}  // namespace

MORTISE_PLUGIN(Accuracy, mortise::wrap<&Accuracy::forward>("forward"))
