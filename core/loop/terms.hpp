// The terms of the loss over a step: how much of each unit there is, and the sums so far. Everything that the device
// divides by or adds to keeps its address from step to step, so that a recorded step can be replayed.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "core/host/batch.hpp"
#include "core/host/call.hpp"

namespace mortise {

// How much of each unit a window or a split holds.
using Counts = std::map<std::string, int64_t, std::less<>>;
void add_counts(Counts& counts, const mortise_batch& batch);

// The counts as scalars on the device, float64, 0-dim.
class Denominators {
 public:
  explicit Denominators(c10::Device device) : scalar_(at::TensorOptions().dtype(at::kDouble).device(device)) {}
  // A unit that is not among the counts keeps its place, with none of it.
  void set(const Counts& counts);
  // Throws PluginError: the data does not count this unit, by which the term of the plugin `by` is divided. Infinite
  // where there is none of it: what is divided is 0.
  const at::Tensor& of(const std::string& unit, const std::string& term, const std::string& by = "") const;
  bool any(const std::string& unit) const;  // is there any of it?
  at::Tensor scalar(double value) const;    // like them

 private:
  at::TensorOptions scalar_;
  std::map<std::string, at::Tensor, std::less<>> by_unit_;
  Counts counts_;
};

// Sums of terms over micro-batches.
class TermSums {
 public:
  struct Sum {
    std::string name, unit;
    double weight;
    at::Tensor total;  // float64, 0-dim
    bool given;        // in this step
  };
  // `as_nothing`: they are there, and their numbers do not count.
  void add(const Terms& terms, bool as_nothing = false);
  // Every sum back to 0, in its place.
  void restart();
  const std::vector<Sum>& all() const { return sums_; }
  // The sums; and as a text their names and units, and which are given.
  std::vector<at::Tensor> totals() const;
  std::string names() const;
  // Which were given in this step, in their order; of a step that was played, as they were when it was recorded.
  std::vector<bool> given() const;
  void set_given(const std::vector<bool>& given);
  // The weighted terms over their denominators, float64, 0-dim, on the device. NaN if nothing of any was counted: that
  // is no loss, and no perfect one.
  at::Tensor loss(const Denominators& denominators) const;
  // Whether anything was counted of a weighted term: as the host knows it, and bool, 0-dim, on the device.
  bool is_counted(const Denominators& denominators) const;
  at::Tensor counted(const Denominators& denominators) const;
  // Averages of the terms of weight 0 that were given, by name; NaN where nothing was counted.
  std::vector<std::pair<std::string, at::Tensor>> metrics(const Denominators& denominators) const;

 private:
  std::vector<Sum> sums_;
};

}  // namespace mortise
