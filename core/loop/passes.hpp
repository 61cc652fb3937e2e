// Passes through the model: forward over its segments, one micro-batch with its backward, an evaluation over a split.
#pragma once
#include <map>
#include <string>

#include "core/loop/chains.hpp"
#include "core/loop/feed.hpp"
#include "core/loop/services.hpp"

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

// How much of each unit a window or a split holds: the denominators.
using Counts = std::map<std::string, int64_t, std::less<>>;
void add_counts(Counts& counts, const mortise_batch& batch);

// Sums of terms over micro-batches, on the device.
class TermSums {
 public:
  void add(const Terms& terms);
  void clear() { sums_.clear(); }
  struct Sum {
    std::string name, unit;
    double weight;
    at::Tensor total;  // float64, 0-dim
  };
  const std::vector<Sum>& all() const { return sums_; }
  // The weighted terms over their denominators. Waits for the device.
  double loss(const Counts& counts) const;

 private:
  std::vector<Sum> sums_;
};

// A call from outside of any other.
mortise_call root_call(Point point, uint32_t mode, uint32_t flags);

class Passes {
 public:
  Passes(Host& host, Chains& chains, Feed* feed);

  // `load`, then `batch`: a micro-batch on the device.
  BatchPtr host_batch(std::string_view split, int64_t index, uint32_t mode);
  BatchPtr device_batch(const BatchPtr& host, uint32_t mode);
  // One micro-batch of a step, gradients divided by `counts` and multiplied by `scale`; its terms go to `sums`.
  void micro(mortise_batch* batch, int32_t micro, bool last, const Counts& counts, const at::Tensor& scale,
             TermSums& sums);
  // Without a graph; results are owned by the caller.
  void forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n, Terms* terms);

 private:
  BatchPtr batch_of(Point point, uint32_t mode, std::initializer_list<mortise_value> args);
  void run_segments(mortise_call& call);
  void run_micro(mortise_call& call);
  Host& host_;
  Chains& chains_;
  Feed* feed_;
  // Of the micro-batch under way.
  const Counts* counts_ = nullptr;
  const at::Tensor* scale_ = nullptr;
  Terms terms_;
};

}  // namespace mortise
