// The update face: each optimizer's slices of master, gradient and states.
#pragma once
#include <memory>
#include <vector>

#include "core/host/parameters.hpp"
#include "core/loop/format.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/plugins.hpp"
#include "mortise/optimizer.h"

namespace mortise {

// One optimizer and its parameters.
class Optimizer {
 public:
  Optimizer(Plugins& plugins, int member, const std::vector<mortise_param*>& params);
  int64_t state_bytes() const;  // exact, before anything is allocated
  void allocate(Host& host);

  // Every state, as PARAMETER/STATE.
  std::vector<StoredTensor> states() const;

  // Updates what got a gradient in this step.
  void step(const Ledger& ledger);
  bool writes_value() const { return object_ && (object_.object->flags & MORTISE_WRITES_VALUE); }
  const std::vector<mortise_param*>& params() const { return params_; }
  const std::string& id() const { return by_->id(); }

 private:
  struct Spec {
    std::string name;
    std::vector<int64_t> sizes;
    uint32_t dtype;
    double fill;
  };
  struct Slot {
    mortise_param* declared;
    std::vector<Spec> specs;
    ParameterState* parameter = nullptr;
    std::vector<at::Tensor> states;
    std::vector<mortise_tensor*> handles;
  };
  std::vector<Spec> specs_of(const mortise_param& p) const;

  Instance* by_;
  Provided<mortise_optimizer> object_;
  std::vector<mortise_param*> params_;
  std::vector<Slot> slots_;
  std::vector<mortise_slice> slices_;  // of the step under way
};

}  // namespace mortise
