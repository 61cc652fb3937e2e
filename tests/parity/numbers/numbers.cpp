// The first logits that a model gives, and the gradients of the first step, for a comparison outside.
#include <fstream>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Numbers {
 public:
  void forward(mortise_call* call, mortise_next* next) {
    const Tensor logits = run_for_logits(call, next);
    if (!std::exchange(has_logits_, true)) write("logits", logits);
  }
  void gradients(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    if (std::exchange(has_gradients_, true)) return;
    for (const mortise_slice& s : slices_now())
      if (s.grad) write(view(s.info->name), s.grad);
  }

 private:
  void write(std::string_view name, Ref tensor) {
    const Tensor flat = ops::contiguous(ops::to(tensor, MORTISE_F32));
    const int64_t sizes[] = {static_cast<int64_t>(name.size()), Info(flat).numel};
    std::vector<float> numbers(static_cast<size_t>(sizes[1]));
    check(api.tensor->read(api.host, flat.get(), numbers.data(), numbers.size() * sizeof(float)));
    out_.write(reinterpret_cast<const char*>(sizes), sizeof sizes) << name;
    out_.write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(numbers.size() * sizeof(float)))
        .flush();
    if (!out_) throw Error(MORTISE_E_IO, "the numbers cannot be written");
  }
  std::ofstream out_{std::string(config::text("path")), std::ios::binary};
  bool has_logits_ = false, has_gradients_ = false;
};
}  // namespace

MORTISE_PLUGIN(Numbers, mortise::wrap<&Numbers::forward>("forward"), mortise::wrap<&Numbers::gradients>("gradients"))
