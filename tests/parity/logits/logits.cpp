// What the model says in an evaluation, every logit of every batch, for a comparison outside.
#include <fstream>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Logits {
 public:
  void forward(mortise_call* call, mortise_next* next) {
    if (call->mode == MORTISE_EVAL) call->want |= MORTISE_WANT_LOGITS;
    check(api.call->next(api.host, next, call));
    if (call->mode != MORTISE_EVAL) return;
    const Tensor logits_BTV = ops::contiguous(ops::to(Ref(call->results[1]), MORTISE_F32));
    std::vector<float> numbers(static_cast<size_t>(Info(logits_BTV).numel));
    check(api.tensor->read(api.host, logits_BTV.get(), numbers.data(), numbers.size() * sizeof(float)));
    out_.write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(numbers.size() * sizeof(float)))
        .flush();
    if (!out_) throw Error(MORTISE_E_IO, "the logits cannot be written");
  }

 private:
  std::ofstream out_{std::string(config::text("path")), std::ios::binary};
};
}  // namespace

MORTISE_PLUGIN(Logits, mortise::wrap<&Logits::forward>("forward"))
