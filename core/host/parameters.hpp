// The values of parameters and their gradients: a compute copy and a master, buffers that are never zeroed, and the
// count of uses, which says when a gradient is complete.
//
// A gradient gets its memory when its first contribution comes, and on a device gives it back before the next step:
// when activations need the most, there are none yet. On a CPU it stays, since there the system fills new memory page
// by page, and so it does where its address is somebody's: of a recorded step, of a tensor that it is a part of.
//
// A use is noted when forward takes a parameter's value. Inside a pair it arrives when the pair's backward has
// returned; elsewhere through a fresh alias with a fresh sink node, whose sequence number is the highest, as
// AccumulateGrad's, so that it runs at once and not at the end of backward. Nothing persists between steps. A parameter
// is ready, once, when as many gradients arrived as uses were counted in the first pass.
//
// Of a parameter that is updated on the host the master lies in the host's memory; the value, and of a sharded one this
// rank's elements of it, is a copy on the device, always other memory.
//
// Of a sharded parameter whoever provides `replicas` gathers the value before each use, takes the gradient of each
// micro-batch, and brings the sums of this rank's elements. A value that comes and goes is a new tensor each time: who
// saved the one before for backward has it for as long as he keeps it.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <vector>

#include "core/abi/edge.hpp"
#include "core/model/declaration.hpp"

namespace mortise {

struct ParameterState {
  mortise_param* declared = nullptr;
  // The compute copy: the same tensor as `master` unless precision says otherwise. Sharded: with `room` behind it;
  // undefined while a value that comes and goes is gone.
  at::Tensor value;
  at::Tensor master;     // sharded: flat, this rank's elements; in the memory of a value that stays, if of its type
  at::Tensor grad;       // undefined until it is needed
  at::Tensor own_grad;   // sharded: of this rank's elements, of this step, summed over the ranks
  at::Tensor own_value;  // sharded: the compute copy of this rank's elements, in the memory of a value that stays, or
                         // on the device of what is updated on the host; undefined where it is cast as it is gathered
  at::Tensor arriving;   // updated on the host: the master, on the device, while ranks send it to one another
  bool has_gradient = false;  // got a contribution this step
  bool begun = false;         // `grad` has one; until then it has anything
  bool is_taken = false;      // sharded: the gradient of this micro-batch
  bool ready = false;
  int first_micro = 0;            // which micro-batch brought the first contribution
  int expected = 0, arrived = 0;  // uses of this micro-batch, and gradients of them that came
  at::Tensor partial;  // tied and accumulated: this micro-batch's sum, added when it is complete, as autograd would
  uint32_t version = 0;
};

// As they are in memory: float64, 0-dim.
at::Tensor norm_of_gradients(const std::vector<at::Tensor>& grads);

class Parameters {
 public:
  explicit Parameters(Edge& edge) : edge_(edge) {}

  // Writes the first values of a master; false: it has none for this parameter.
  using Fill = std::function<bool(const mortise_param&, at::Tensor& master)>;
  // Allocates, and initialises what `fill` does not: bits come from (seed, name, index).
  void allocate(Declaration& d, at::Device device, uint64_t seed, const Fill& fill = {});

  void begin_step();
  void begin_micro(int micro, bool last);
  // Refuses a value that was written in place during forward.
  void check_versions() const;
  // The outermost backward is over: whatever did not arrive never will.
  void end_backward();

  at::Tensor use(mortise_param& p, uint32_t flags);  // outside a pair, with autograd
  at::Tensor value(mortise_param& p);                // inside one
  void count_use(const mortise_param& p, uint32_t flags);

  // Undefined: sum a temporary instead. Without `add` only what is to be overwritten.
  at::Tensor target(const mortise_param& p, at::ScalarType dtype, bool* add);
  void sum(const mortise_param& p, const at::Tensor& contribution);
  void arrive(const mortise_param& p);

  // Its gradient, or the memory for it.
  at::Tensor& gradient(ParameterState& s) const;
  // From here on gradients stay where they are; or they do not, on a CPU in a test.
  void keep_gradients(bool keep = true) { keeps_gradients_ = keep; }

  // The norm of all gradients of this step that every rank has whole, as they are in memory, float64, 0-dim.
  at::Tensor norm() const;
  // Of each parameter that ranks have in parts the square of the norm of the elements that this one counts, 0 without a
  // gradient: float64, [n].
  at::Tensor squares_of_parts() const;
  // Casts masters to compute copies, where they are other memory; not for those in `written`, nor for what is updated
  // on the host.
  void publish(const std::vector<bool>& written);
  void cast(const mortise_param& p);
  // On the device: elements of the value that this rank updates, flat.
  at::Tensor updated_value(const mortise_param& p, const Piece& piece);
  // On the device: the master, or a copy of it until `masters_arrived`, which takes what ranks have written there.
  at::Tensor master_to_gather(const mortise_param& p);
  void masters_arrived();

  // The gradient is a part of `flat` from here on, with what it has. Throws PluginError: it does not fit.
  void place(const mortise_param& p, const at::Tensor& flat, int64_t offset);

  // What ranks.h says of sharded parameters. Throws PluginError: it is none.
  at::Tensor hold(const mortise_param& p);
  void drop(const mortise_param& p);
  at::Tensor take_gradient(const mortise_param& p);
  void add_gradient(const mortise_param& p, const at::Tensor& own);

  ParameterState& state(const mortise_param& p) { return states_[p.index]; }
  std::deque<ParameterState>& all() { return states_; }

 private:
  void complete(ParameterState& s);
  at::Tensor first_master(const mortise_param& p, uint64_t seed, const Fill& fill) const;
  ParameterState& sharded(const mortise_param& p);
  void keep_own(ParameterState& s, const at::Tensor& whole);  // of the first values
  at::Tensor with_room(const mortise_param& p, uint32_t dtype) const;
  c10::Device device_ = c10::kCPU;
  std::deque<ParameterState> states_;
  Edge& edge_;  // its loop is told what is ready
  int micro_ = 0;
  bool last_ = true, keeps_gradients_ = false;
};

}  // namespace mortise
