// Tensors beside parameters, allocated: the states of one optimizer, or what another plugin keeps.
#pragma once
#include <string>
#include <vector>

#include "core/abi/states.hpp"
#include "core/host/host.hpp"

namespace mortise {

// One of them, as a checkpoint names it.
struct NamedState {
  std::string name;  // PARAMETER/STATE
  at::Tensor tensor;
  uint32_t dtype = 0;  // as declared
};

class States {
 public:
  States(const std::vector<ParamStates>& declared, Host& host);
  std::vector<NamedState> named() const;
  // Those that begin as their parameter's master take it as it is now.
  void copy_masters();

  enum class Which {
    kAll,             // of every parameter, without gradients
    kWithGradients,   // of every parameter, with the gradient of this step where there is one
    kWhereGradients,  // only where this step brought a gradient
  };
  // Good until the next call.
  const std::vector<mortise_slice>& slices(Which which);

 private:
  struct Slot {
    ParameterState* parameter;
    std::vector<StateSpec> declared;
    std::vector<at::Tensor> tensors;
    std::vector<mortise_tensor*> handles;
  };
  std::vector<Slot> slots_;
  std::vector<mortise_slice> slices_;
};

}  // namespace mortise
