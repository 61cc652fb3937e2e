// The update: an optimizer over slices of master, gradient and states.
#pragma once
#include <vector>

#include "core/declare/optimizers.hpp"
#include "core/host/host.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/states.hpp"

namespace mortise {

// One optimizer with its states, allocated.
class Optimizer {
 public:
  Optimizer(const DeclaredOptimizer& declared, Host& host) : declared_(declared), states_(declared.states, host) {}
  std::vector<NamedState> states() const { return states_.named(); }
  // Updates what got a gradient in this step.
  void step(const Ledger& ledger);
  const std::string& id() const { return declared_.by->id(); }
  bool writes_value() const { return declared_.writes_value(); }
  const std::vector<mortise_param*>& params() const { return declared_.params; }

 private:
  const DeclaredOptimizer& declared_;
  States states_;
};

}  // namespace mortise
