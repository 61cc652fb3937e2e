// A run without a loop, for tests that need one function of it.
#pragma once
#include "core/abi/error.hpp"
#include "core/abi/services.hpp"

namespace mortise::testing {

struct NoLoop : LoopServices {
  const mortise_ledger& ledger() override { throw PluginError(MORTISE_E_INTERNAL, "a test has no step"); }
  void vote(mortise_tensor*) override {}
  void multiply(mortise_tensor*) override {}
  void set_scale(mortise_tensor*) override {}
  void report(std::string_view, mortise_tensor*, std::string_view) override {}
  void metric(std::string_view, double) override {}
  uint64_t recorded() override { return 0; }
  void replayed(uint64_t) override {}
  void term(std::string_view, mortise_tensor*, std::string_view, double) override {}
  void attach_term(std::string_view, mortise_tensor*, mortise_tensor*, std::string_view, double,
                   mortise_tensor**) override {}
  void norm(mortise_tensor**) override {}
  void ready(mortise_param&, int, bool) override {}
  void need(mortise_param&, int, bool) override {}
  void slices(const PluginHost&, const mortise_slice**, uint32_t*) override {}
  void publish(const mortise_param&) override {}
  void forward(mortise_batch*, uint32_t, uint32_t, mortise_value*, uint32_t) override {}
};

}  // namespace mortise::testing
