// What the loop does for plugins, over whatever of it exists: the model once it is allocated, the rest once it trains.
#pragma once
#include <functional>

#include "core/abi/services.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/passes.hpp"
#include "mortise/objects.h"

namespace mortise {

class RunServices final : public LoopServices {
 public:
  explicit RunServices(Passes& passes) : passes_(passes) {}
  // From here on there are steps. `norm` gives the global gradient norm in true units.
  void train(Ledger& ledger, Provided<mortise_replicas> replicas, std::function<at::Tensor()> norm);

  const mortise_ledger& ledger() override;
  void vote(mortise_tensor* ok) override;
  void multiply(mortise_tensor* factor) override;
  void term(std::string_view name, mortise_tensor* sum, std::string_view unit, double weight) override;
  void norm(mortise_tensor** out) override;
  void ready(mortise_param& p, int micro, bool last) override;
  void forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n) override;

 private:
  Ledger& need_ledger() const;

  Passes& passes_;
  Ledger* ledger_ = nullptr;
  Provided<mortise_replicas> replicas_;
  std::function<at::Tensor()> norm_;
};

}  // namespace mortise
