// The F1 score of an evaluation: 2 hits / (said + labels) of each class. It is no sum over samples, so the three counts
// of each class are kept on the device until the evaluation ends.
#include <cmath>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class F1 {
 public:
  F1() {
    if (config::get("positive").tag == MORTISE_NONE) return;
    if (average_ != "binary")
      config::refuse("positive", "an average of all classes has none such", "average = \"binary\", or leave it out");
    positive_ = config::integer("positive");
  }

  void evaluate(mortise_call* call, mortise_next* next) {
    hits_ = said_ = labels_ = Tensor();
    check(api.call->next(api.host, next, call));
    check(api.loop->metric(api.host, MORTISE_STR("f1"), score()));
  }

  void forward(mortise_call* call, mortise_next* next) {
    const Tensor labels = call->mode == MORTISE_EVAL ? field(call->batch, "labels") : Tensor();
    if (!labels) return check(api.call->next(api.host, next, call));
    const Tensor logits = run_for_logits(call, next);
    if (!logits) throw Error(MORTISE_E_UNSUPPORTED, "the model gives no logits as its second result");
    const Info scores(logits);
    if (scores.rank != Info(labels).rank + 1)
      throw Error(MORTISE_E_SHAPE, "logits of " + std::to_string(scores.rank) + " dimensions over labels of " +
                                       std::to_string(scores.rank - 1) + " are wanted");
    static const Op argmax("aten::argmax"), equal("aten::eq.Tensor"), not_below("aten::ge.Scalar");
    const int64_t classes = scores.sizes[scores.rank - 1];
    // A batch of no samples only fills the place of one.
    if (place_now().size > 1 && count(call->batch, "samples") == 0) ops::fill_(labels, kNoLabel);
    const Tensor said = argmax(logits, int64_t{-1}, false), counts = not_below(labels, 0);
    add(hits_, labels, equal(said, labels), classes);
    add(said_, said, counts, classes);
    add(labels_, labels, counts, classes);
  }

 private:
  static constexpr int64_t kNoLabel = -100;

  static int64_t count(const mortise_batch* batch, const char* unit) {
    int64_t n = 0;
    check(api.batch->count(api.host, batch, mortise_text(unit), &n));
    return n;
  }

  // How often each class stands where `mask` says so: int64 [classes].
  static void add(Tensor& sum, Ref classes_of, Ref mask, int64_t classes) {
    static const Op select("aten::masked_select"), bincount("aten::bincount");
    Tensor n = bincount(select(classes_of, mask), none(), classes);
    sum = sum ? ops::add(sum, n) : std::move(n);
  }

  // As scikit-learn has it: 0 where hits are none, and classes that nobody said and no label is do not count.
  double score() const {
    const std::vector<int64_t> hits = summed(hits_), said = summed(said_), labels = summed(labels_);
    const auto of = [&](size_t c) {
      const int64_t all = said[c] + labels[c];
      return all > 0 ? 2 * static_cast<double>(hits[c]) / static_cast<double>(all) : 0;
    };
    if (average_ == "binary") {
      if (hits.empty()) return NAN;
      if (positive_ < static_cast<int64_t>(hits.size())) return of(static_cast<size_t>(positive_));
      // Known here alone; a run that has trained so far is not ended by it.
      log_line(MORTISE_LOG_WARNING, "there is no eval.f1 of class " + std::to_string(positive_) + " (positive): the " +
                                        "model knows " + std::to_string(hits.size()) + ", from 0");
      return NAN;
    }
    double sum = 0, weights = 0;
    for (size_t c = 0; c < hits.size(); ++c) {
      const double weight = average_ == "weighted" ? static_cast<double>(labels[c]) : said[c] + labels[c] > 0;
      sum += weight * of(c);
      weights += weight;
    }
    return weights > 0 ? sum / weights : NAN;
  }

  // Over the ranks.
  static std::vector<int64_t> summed(const Tensor& t) {
    std::vector<int64_t> all(t ? static_cast<size_t>(Info(t).numel) : 0);
    if (t) check(api.tensor->read(api.host, t.get(), all.data(), all.size() * sizeof all[0]));
    if (api.comm) host_all_reduce(all);
    return all;
  }

  const std::string average_{config::text("average")};
  int64_t positive_ = 1;
  Tensor hits_, said_, labels_;  // int64 [classes], on the device; empty before the first micro-batch
};
}  // namespace

MORTISE_PLUGIN(F1, mortise::wrap<&F1::evaluate>("eval"), mortise::wrap<&F1::forward>("forward"))
