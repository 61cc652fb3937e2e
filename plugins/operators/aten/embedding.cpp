// embedding: y = weight[ids], in the dtype in which the weight is stored; the residual stream begins with it.
#include <algorithm>
#include <span>

#include "common.hpp"

namespace mortise::aten {
namespace {

class Embedding {
 public:
  Embedding(const Builder& build, const LayerSpec& spec)
      : rows_(spec.integer("vocab")), width_(spec.integer("width")), weight_(build.param({spec.name() + ".weight",
                                                                                          "embedding",
                                                                                          {"vocab", "width"},
                                                                                          {rows_, width_},
                                                                                          "normal",
                                                                                          spec.number("init", 0.02)})) {
  }

  void forward(mortise_call* call, Saves& saves) const {
    check_ids(call);
    if (trainable(weight_)) saves.input(0);
    give(call, 0, ops::embedding(use(weight_), call->args[0]));
  }
  void backward(mortise_call*, Backward& b) const {
    if (!trainable(weight_) || !b.grad(0)) return;
    const bool in_bands = rows_ * width_ >= kLarge && Info(b.saved(0)).numel <= kFew;
    const GradientTarget to = in_bands ? gradient_target(weight_, MORTISE_F32) : GradientTarget();
    if (!to.buffer) return sum_gradient(weight_, ops::embedding_backward(b.grad(0), b.saved(0), rows_));
    const int last = static_cast<int>(Info(b.grad(0)).rank) - 1;
    for (int64_t from = 0, n = (width_ + kBands - 1) / kBands; from < width_; from += n) {
      n = std::min(n, width_ - from);
      const Tensor part = ops::embedding_backward(ops::narrow(b.grad(0), last, from, n), b.saved(0), rows_);
      const Tensor band = ops::narrow(to.buffer, 1, from, n);
      if (to.add) ops::add_(band, part);
      else ops::copy_(band, part);
    }
  }

 private:
  // A band of columns after another has the bits of all at once. A second gradient of a large table is a peak of memory
  // where a batch is small; where it is large, activations are more, and LibTorch's CUDA kernels many for each band.
  static constexpr int64_t kLarge = 1 << 20, kFew = 3072, kBands = 4;

  // A GPU's ids are not read here, which would wait for it.
  void check_ids(const mortise_call* call) const {
    const Info ids(call->args[0].v.t);
    if (ids.device != MORTISE_CPU || ids.dtype != MORTISE_I64 || !(ids.flags & MORTISE_CONTIGUOUS)) return;
    const std::span<const int64_t> all(ids.as<const int64_t>(), static_cast<size_t>(ids.numel));
    const auto wrong = std::ranges::find_if(all, [&](int64_t id) { return id < 0 || id >= rows_; });
    if (wrong != all.end())
      throw Error(MORTISE_E_DATA, std::string(view(call->path)) + " has rows for 0 to " + std::to_string(rows_ - 1) +
                                      ", the batch asks for " + std::to_string(*wrong));
  }

  int64_t rows_, width_;
  mortise_param* weight_;
};

}  // namespace

const mortise_operator* embedding() { return operator_of<Embedding>(); }

}  // namespace mortise::aten
