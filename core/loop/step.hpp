// One step: window, batches and their counts before it; gradients, verdict, transform, optimizers and commit inside it,
// which ask the host for nothing; the report behind it.
#pragma once
#include <deque>
#include <optional>

#include "core/loop/passes.hpp"
#include "core/loop/update.hpp"
#include "mortise/objects.h"

namespace mortise {

struct StepReport {
  bool applied = true;
  double loss = 0, norm = 0, lr = 0, data_wait_s = 0;
  int64_t samples = 0, tokens = 0;
  std::string skipped_parameter;                        // the first whose gradient is not finite
  std::vector<std::pair<std::string, double>> metrics;  // terms of weight 0, averaged
};

class Step {
 public:
  Step(Host& host, Chains& chains, Passes& passes, Feed& feed, Services& services, Ledger& ledger,
       std::deque<Optimizer>& optimizers, Provided<mortise_comm> comm, Provided<mortise_replicas> replicas);

  StepReport run();
  // How many micro-batches the next step takes, by step.window.
  int32_t window();
  // Micro-batches consumed since the beginning.
  int64_t cursor() const { return cursor_; }
  void set_cursor(int64_t consumed) { cursor_ = consumed; }

 private:
  void load_window();
  void gradients();
  void update();
  StepReport report();
  std::string first_nonfinite();
  const at::Tensor& norm();

  Host& host_;
  Chains& chains_;
  Passes& passes_;
  Feed& feed_;
  Services& services_;
  Ledger& ledger_;
  std::deque<Optimizer>& optimizers_;
  Provided<mortise_comm> comm_;
  Provided<mortise_replicas> replicas_;
  std::vector<bool> written_;  // parameters whose optimizer writes the compute face itself
  std::vector<BatchPtr> batches_;
  Counts counts_;
  TermSums sums_;
  at::Tensor norm_;
  double data_wait_s_ = 0;
  int64_t cursor_ = 0;
};

}  // namespace mortise
