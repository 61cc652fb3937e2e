// The update: an optimizer's slices of master, gradient and states.
#pragma once
#include <deque>
#include <vector>

#include "core/declare/optimizers.hpp"
#include "core/host/host.hpp"
#include "core/loop/ledger.hpp"

namespace mortise {

// One state of one parameter, as a checkpoint names it.
struct NamedState {
  std::string name;  // PARAMETER/STATE
  at::Tensor tensor;
};

// One optimizer with its states, allocated.
class Optimizer {
 public:
  Optimizer(const DeclaredOptimizer& declared, Host& host);
  std::vector<NamedState> states() const;
  // Updates what got a gradient in this step.
  void step(const Ledger& ledger);
  bool writes_value() const { return declared_.writes_value(); }
  const std::vector<mortise_param*>& params() const { return declared_.params; }

 private:
  struct Slot {
    const DeclaredOptimizer::Slot* declared;
    ParameterState* parameter;
    std::vector<at::Tensor> states;
    std::vector<mortise_tensor*> handles;
  };

  const DeclaredOptimizer& declared_;
  std::vector<Slot> slots_;
  std::vector<mortise_slice> slices_;  // of the step under way
};

}  // namespace mortise
