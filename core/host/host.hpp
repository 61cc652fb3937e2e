// The edge with tensors: the tables that stand over LibTorch, the parameters, and the chains that calls run through.
#pragma once
#include <c10/core/Device.h>

#include <deque>
#include <functional>
#include <vector>

#include "core/abi/edge.hpp"
#include "core/host/call.hpp"
#include "core/host/parameters.hpp"
#include "mortise/tensor.h"

namespace mortise {

// While one lives, whatever this thread calls takes the host's processor for the run's device.
struct OnHost {
  OnHost() { is_here = true; }
  ~OnHost() { is_here = false; }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  static inline thread_local bool is_here = false;
};

class Host : public Edge {
 public:
  // Touches nothing of LibTorch: the device opens first.
  Host(const PointTable& points, uint64_t seed, c10::Device device = c10::Device(c10::kCPU));

  c10::Device device() const { return OnHost::is_here ? c10::Device(c10::kCPU) : device_; }
  void device_opened(uint32_t kind, int32_t index, bool repeats) override;
  Parameters& parameters() { return parameters_; }

  mortise_next* add_link() { return &links_.emplace_back(); }
  // The chain of a layer in a mode; NULL if none was set.
  const mortise_next* layer_chain(const mortise_layer& l, uint32_t mode) const {
    return l.index < layer_chains_.size() && mode < MORTISE_MODES ? layer_chains_[l.index][mode] : nullptr;
  }
  void set_layer_chain(const mortise_layer& l, uint32_t mode, const mortise_next* chain);

  // While this is on, element types in training are compared with what was planned.
  bool checks_dtypes = false;
  uint32_t planned_compute_dtype = MORTISE_NO_DTYPE;

 private:
  c10::Device device_;
  Parameters parameters_;
  std::deque<mortise_next> links_;
  std::vector<std::array<const mortise_next*, MORTISE_MODES>> layer_chains_;
};

// Whose window it is. Only tables of this room call it, and only a Host registers them, so the owner is one.
inline Host& host_of(mortise_host* h) { return static_cast<Host&>(*plugin_of(h).owner); }

// What an operator gave, in the types that its row of the points says. `uses`: the parameters that a pair used, NULL of
// a composite. Throws PluginError.
void check_result_dtypes(const mortise_next& link, const Host& host, const mortise_call& call,
                         const std::vector<mortise_param*>* uses);

// A tensor with the bytes of `carrier`. Backward through it also reaches `root`, with the gradient that `seed` makes.
at::Tensor with_root(const at::Tensor& carrier, const at::Tensor& root, std::function<at::Tensor()> seed);

// Backward from `roots`; at the end of the outermost one the parameters are told. Throws PluginError.
void run_backward(Host& host, const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& seeds,
                  uint32_t flags = 0);
bool is_backward_under_way();  // one that was begun by that, on whatever thread

}  // namespace mortise
