// The ledger: scalars and vectors on the device that the update reads, so that a step asks the host for nothing. Rates
// are tabulated ahead, a row an applied step, and the step picks its row with the device's own count.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/abi/provided.hpp"
#include "core/model/declaration.hpp"
#include "mortise/loop.h"
#include "mortise/objects.h"

namespace mortise {

struct Horizon {
  int64_t warmup = 0, over = 1;  // applied steps: linear from 0, then the schedule until `over`
};

class Ledger {
 public:
  Ledger(c10::Device device, const std::vector<Group>& groups, Provided<mortise_schedule> schedule, Horizon horizon);

  const mortise_ledger& c() const { return c_; }
  // `attempted` and `applied` as the host knows them. Fills the rows again when half of them are used.
  void begin_step(int64_t attempted, int64_t applied);
  // As it was after `applied` steps.
  void restore(int64_t applied, double scale);
  // Before the update: lr of this step, and the multiplier back to 1/scale, the verdict to 1, or to 0 where there is
  // nothing to learn. `learns`: bool, 0-dim, on the device.
  void begin_update(const at::Tensor& learns);
  // The factor of the loss, from the next backward on.
  void set_scale(const at::Tensor& factor) { scale.copy_(factor); }
  void vote(const at::Tensor& ok);
  void multiply(const at::Tensor& factor);
  // After it: one more step applied, if the verdict says so.
  void commit();

  at::Tensor scale, multiplier, verdict, applied, lr, weight_decay, attempted;

 private:
  double rate(int64_t applied) const;  // of the peak
  void refill(int64_t attempted, int64_t applied);
  static constexpr int64_t kRows = 64;
  std::vector<Group> groups_;
  Provided<mortise_schedule> schedule_;
  Horizon horizon_;
  at::Tensor table_, base_;
  int64_t filled_at_ = -1;  // attempted steps when the rows were filled; -1: never
  mortise_ledger c_{};
};

}  // namespace mortise
