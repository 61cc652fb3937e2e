// The update: an optimizer over slices of master, gradient and states.
#pragma once
#include <vector>

#include "core/declare/optimizers.hpp"
#include "core/host/host.hpp"
#include "core/loop/host_update.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/states.hpp"

namespace mortise {

// One optimizer with its states, allocated.
class Optimizer {
 public:
  // `store` outlives it; NULL: all states are in memory.
  Optimizer(const DeclaredOptimizer& declared, Host& host, StateStore* store = nullptr)
      : declared_(declared), states_(declared.states, host, store), on_host_(host, store) {}
  // Of this rank.
  std::vector<NamedState> states() const { return states_.named(); }
  // Of all ranks, on the first; every rank calls it.
  std::vector<NamedState> gathered_states(const Ranks& ranks) const { return states_.gathered(ranks); }
  // Updates what got a gradient in this step.
  void step(const Ledger& ledger);
  const std::string& id() const { return declared_.by->id(); }
  bool writes_value() const { return declared_.writes_value(); }
  bool is_cut() const { return declared_.is_cut(); }
  bool is_in_parts() const { return declared_.is_in_parts(); }
  const std::vector<mortise_param*>& params() const { return declared_.params; }

 private:
  void update(const std::vector<mortise_slice>& slices, const mortise_ledger& ledger) const;

  const DeclaredOptimizer& declared_;
  States states_;
  HostUpdate on_host_;
};

}  // namespace mortise
