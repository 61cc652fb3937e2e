// Tensors beside parameters, allocated: the states of one optimizer, or what another plugin keeps.
#pragma once
#include <string>
#include <vector>

#include "core/abi/states.hpp"
#include "core/host/host.hpp"
#include "core/loop/ranks.hpp"
#include "core/loop/state_store.hpp"

namespace mortise {

// One of them, as a checkpoint names it.
struct NamedState {
  std::string name;  // PARAMETER/STATE
  at::Tensor tensor;
  uint32_t dtype = 0;               // as declared
  std::vector<int64_t> sizes = {};  // likewise: of what this rank has
  // Of a part: the sizes of the whole; what this rank has of that, where it lies along an axis; and where in that the
  // tensor's elements begin.
  bool is_part = false;
  std::vector<int64_t> whole = {};
  const Placement* placement = nullptr;
  int64_t offset = 0;
  bool is_own = false;  // gathered for who asked: nobody else has the tensor
};

// What ranks have in parts, of a parameter or beside one, as a whole: in the host's memory of the first rank, undefined
// on the others. Every rank calls it. `own`: flat, where there are `pieces`, those of its replicas, which together have
// `sizes`; what lies along an axis has `whole` sizes. `device`: the run's, where ranks exchange what they have.
struct InParts {
  const mortise_param& param;
  at::IntArrayRef sizes, whole;
  std::vector<Piece> pieces;
};
at::Tensor gathered(const at::Tensor& own, const InParts& parts, const Ranks& ranks, c10::Device device);

class States {
 public:
  // `store`: for those of parameters that say so; NULL: all are in memory.
  States(const std::vector<ParamStates>& declared, Host& host, StateStore* store = nullptr);
  // What this rank has.
  std::vector<NamedState> named() const;
  // All of it, on the first rank; of what is cut the others get nothing. Every rank calls it.
  std::vector<NamedState> gathered(const Ranks& ranks) const;
  // Those that begin as their parameter's master take it as it is now.
  void copy_masters();

  enum class Which {
    kAll,             // of every parameter, without gradients
    kWithGradients,   // of every parameter, with the gradient of this step where there is one
    kWhereGradients,  // only where this step brought a gradient
  };
  // Good until the next call. What is updated in parts has a slice of each.
  const std::vector<mortise_slice>& slices(Which which);
  // The slices are not used any more: nothing here holds the memory of gradients.
  void let_go();

 private:
  // What is updated at once.
  struct Part {
    Piece elements;
    std::vector<at::Tensor> states;
    std::vector<mortise_tensor*> handles;
    at::Tensor master, grad, value;
  };
  struct Slot {
    ParameterState* parameter;
    ParamStates declared;
    std::vector<at::Tensor> tensors;
    std::vector<Part> parts;
  };
  static bool is_whole(const Slot& s);
  static std::vector<int64_t> own_sizes(const Slot& s, const StateSpec& spec);  // of what this rank has of a state
  static void cut(Slot& s);

  c10::Device device_;
  std::vector<Slot> slots_;
  std::vector<mortise_slice> slices_;
};

}  // namespace mortise
