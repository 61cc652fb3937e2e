// The second and third phase of a run, after Declared. Allocated: parameters have values and calls have their links, so
// that it can be evaluated and sampled. Runnable: there are optimizer states, a ledger and a step, so that
// it can be trained.
#pragma once
#include <deque>
#include <memory>
#include <string>

#include "core/declare/declared.hpp"
#include "core/host/host.hpp"
#include "core/loop/chains.hpp"
#include "core/loop/feed.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/loop_services.hpp"
#include "core/loop/passes.hpp"
#include "core/loop/step.hpp"
#include "core/loop/update.hpp"

namespace mortise {

struct Allocated {
  // Outlive the plugins, which are declared's: one may have threads that load.
  std::unique_ptr<Chains> chains;
  std::unique_ptr<Feed> feed;
  std::unique_ptr<Passes> passes;
  std::unique_ptr<RunServices> services;
  Declared declared;

  Host& host() const { return static_cast<Host&>(*declared.edge); }
};

// `declared` stands over a Host. `initial`: values come from the weights or run.seed; else a checkpoint is restored
// later. Throws Failure.
Allocated allocate(Declared declared, bool initial);

struct Runnable {
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<StateStore> store;  // NULL: all states are in memory
  std::unique_ptr<std::deque<Optimizer>> optimizers;
  std::unique_ptr<Step> step;
  Allocated allocated;

  const Declared& declared() const { return allocated.declared; }
  Host& host() const { return allocated.host(); }
};

// Throws Failure.
Runnable make_runnable(Allocated allocated);

}  // namespace mortise
