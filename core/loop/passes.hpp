// Passes through the model: forward over its segments, one micro-batch with its backward, an evaluation over a split.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/abi/exchange.hpp"
#include "core/declare/samples.hpp"
#include "core/host/host.hpp"
#include "core/loop/chains.hpp"
#include "core/loop/feed.hpp"
#include "core/loop/ranks.hpp"
#include "core/loop/terms.hpp"

namespace mortise {

// A batch that is released with its owner.
class BatchPtr {
 public:
  explicit BatchPtr(mortise_batch* b = nullptr) : b_(b) {}
  BatchPtr(BatchPtr&& o) noexcept : b_(std::exchange(o.b_, nullptr)) {}
  BatchPtr& operator=(BatchPtr&& o) noexcept {
    std::swap(b_, o.b_);
    return *this;
  }
  ~BatchPtr() { release(b_); }
  mortise_batch* get() const { return b_; }

 private:
  mortise_batch* b_;
};

// A call that stands in no other.
mortise_call root_call(Point point, uint32_t mode, uint32_t flags);
// Throws PluginError: a wrapper of the point did not go on, and nothing was done.
[[noreturn]] void refuse_skipped(const Chains& chains, Point point, uint32_t mode);

class Passes {
 public:
  // Provides `load`, `forward`, `micro`, `backward` and `eval` to the chains.
  Passes(Host& host, Chains& chains, Feed& feed, Samples& samples);

  // `load`: a micro-batch on the host.
  BatchPtr host_batch(std::string_view split, int64_t index, uint32_t mode);
  // `batch`: the same on the device.
  BatchPtr device_batch(const BatchPtr& host, uint32_t mode);
  // One micro-batch of a step: its gradients, divided by the denominators and multiplied by `scale`; its terms go to
  // `sums`.
  void micro(mortise_batch* batch, int32_t micro, bool last, const Denominators& denominators, const at::Tensor& scale,
             TermSums& sums);
  // A tensor with the bytes of `carrier`. Backward through it also reaches a term of the micro-batch under way.
  at::Tensor attached(const at::Tensor& carrier, const Term& term) const;
  // Without a graph; results are owned by the caller.
  void forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n, Terms* terms);
  // A pass over the validation split, as one call of `eval`, so that a wrapper may give it other weights. `give_up` is
  // asked before each batch; where it says so, the result is not complete and has no values.
  Measured evaluate(const std::function<bool()>& give_up = {});
  // A number of the evaluation under way that a plugin gives. Throws PluginError: there is none, or it has one.
  void metric(std::string_view name, double number);

 private:
  BatchPtr batch_of(Point point, uint32_t mode, std::initializer_list<mortise_value> args);
  // `forward` through its wrappers, one of which at least must go on.
  void run_forward(mortise_call& call, const Frame& frame);
  void run_segments(mortise_call& call);
  void check_compute_dtype(const mortise_call& call) const;
  void run_micro(mortise_call& call);
  void run_backward_of_terms();
  // Makes the gradient that backward begins with at a term's sum.
  std::function<at::Tensor()> seed_of(const Term& term) const;
  void measure(Measured& measured);
  // What the segments gave so far is forgotten: a wrapper of `forward` may call it again, and the last one counts.
  void forget_terms_of_segments(Terms& terms);
  // Does it only fill the place of a micro-batch, on a rank for which no samples were left?
  bool is_fill(const mortise_batch& batch) const;

  Host& host_;
  Chains& chains_;
  Feed& feed_;
  Samples& samples_;
  const Ranks ranks_;
  int64_t forwards_run_ = 0;  // since the beginning: how often wrappers of `forward` went on
  // Of the micro-batch under way.
  const Denominators* denominators_ = nullptr;
  const at::Tensor* scale_ = nullptr;
  Terms terms_;
  int micros_run_ = 0;     // how often its wrappers went on
  int backwards_run_ = 0;  // likewise, of the last `backward`
  // Of the evaluation under way.
  Measured* measured_ = nullptr;
  std::vector<std::pair<std::string, double>> given_;  // by plugins
  const std::function<bool()>* give_up_ = nullptr;
};

}  // namespace mortise
