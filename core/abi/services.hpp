// What the core does for plugins while a run is assembled and while it trains: the clock, filters, requests, kept state
// (Services, there from the beginning); the ledger, votes, terms, gradients and the model (LoopServices, there once
// there is a loop). The tables mortise.loop, .model, .state, .tokenizer and .comm stand over both.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/abi/provided.hpp"
#include "core/abi/states.hpp"
#include "core/base/mesh.hpp"
#include "core/base/world.hpp"
#include "mortise/checkpoint.h"
#include "mortise/data.h"
#include "mortise/loop.h"
#include "mortise/ranks.h"

namespace mortise {

// A piece of state that a plugin keeps.
struct KeptBlob {
  const PluginHost* host = nullptr;
  const mortise_blob* blob = nullptr;
};

// The tensors that a plugin keeps beside parameters.
struct KeptTensors {
  const PluginHost* host = nullptr;
  std::vector<ParamStates> beside;
};

// Which filter is under way: what may be changed hangs on it.
enum class Filter { kNone, kWindow, kVerdict, kTransform, kScale };

// Stop or abort: what the loop is asked for, on any thread. The strongest stays.
class Requests {
 public:
  struct Request {
    uint32_t what = 0;  // MORTISE_STOP, MORTISE_ABORT; 0: nothing
    std::string reason, by;
  };
  void add(Request request) {
    const std::lock_guard lock(mutex_);
    if (request.what > strongest_.what) strongest_ = std::move(request);
  }
  Request strongest() const {
    const std::lock_guard lock(mutex_);
    return strongest_;
  }

 private:
  mutable std::mutex mutex_;
  Request strongest_;
};

// Ranks that communicate by themselves, as `comm` has made them; NULL, of several ranks: all of them.
struct RankGroups {
  std::vector<mortise_rank_group*> along, sharers;  // by axis: along it, and of what lies along it
  mortise_rank_group* data = nullptr;               // of what every rank has: those that see other samples
  mortise_rank_group* of(int axis) const { return axis < 0 ? data : sharers[static_cast<size_t>(axis)]; }
};

struct Services {
  Provided<mortise_tokenizer> tokenizer;
  Provided<mortise_comm> comm;
  World world;
  Mesh mesh;
  RankGroups groups;
  bool records_steps = false;  // a plugin does: it plays them instead of calling `step`
  mortise_clock clock{};
  Filter filter = Filter::kNone;
  int32_t window = 1;
  std::vector<KeptBlob> blobs;
  std::vector<KeptTensors> kept;
  Requests requests;
  // Runs what waits for other ranks, on the host or in the stream of the device, and takes the time. Empty: none.
  std::function<void(bool on_host, const std::function<void()>& body)> timed_wait;
  void wait(bool on_host, const std::function<void()>& body) const { timed_wait ? timed_wait(on_host, body) : body(); }
  // Throws PluginError: a rank is lost, as far as is known here. What ranks sent on the device is then nothing: whoever
  // uses it on the host asks before, and after it has waited for the device.
  void must_be_there() const {
    if (comm && world.size > 1)
      comm.call(&mortise_comm::host_all_reduce, "host_all_reduce", nullptr, uint32_t{0}, uint32_t{MORTISE_SUM});
  }
  // Into the record that listeners are told of; empty while there is none.
  std::function<void(std::string_view name, const mortise_value&)> add_column;
};

// Opens a filter for the listeners of one event.
class FilterScope {
 public:
  FilterScope(Services& s, Filter f) : services_(s) { services_.filter = f; }
  ~FilterScope() { services_.filter = Filter::kNone; }
  FilterScope(const FilterScope&) = delete;
  FilterScope& operator=(const FilterScope&) = delete;

 private:
  Services& services_;
};

// Implemented by the loop. Everything throws PluginError.
class LoopServices {
 public:
  virtual ~LoopServices() = default;
  virtual const mortise_ledger& ledger() = 0;
  virtual void vote(mortise_tensor* ok) = 0;
  virtual void multiply(mortise_tensor* factor) = 0;
  virtual void set_scale(mortise_tensor* scale) = 0;
  // A number for the record of the step under way.
  virtual void report(std::string_view name, mortise_tensor* number, std::string_view unit) = 0;
  virtual void metric(std::string_view name, double number) = 0;
  // What the step under way left on the host, to be taken again by a step that was played; numbers above 0.
  virtual uint64_t recorded() = 0;
  virtual void replayed(uint64_t token) = 0;
  // A term of the loss of the micro-batch under way.
  virtual void term(std::string_view name, mortise_tensor* sum, std::string_view unit, double weight) = 0;
  // The same, whose gradient comes to `sum` where backward passes `*out`, which is `carrier`; owned by the caller.
  virtual void attach_term(std::string_view name, mortise_tensor* carrier, mortise_tensor* sum, std::string_view unit,
                           double weight, mortise_tensor** out) = 0;
  // The global gradient norm in true units, float64, 0-dim; owned by the caller. Computed once a step.
  virtual void norm(mortise_tensor** out) = 0;
  // The gradient of a parameter is complete for this micro-batch. [autograd]
  virtual void ready(mortise_param& p, int micro, bool last) = 0;
  // The value of a sharded parameter is there when this returns. `segment`: which one computes, -1: none. [autograd]
  virtual void need(mortise_param& p, int segment, bool backward) = 0;
  // The trainable parameters with what `plugin` keeps beside them; the array is good until it asks again.
  virtual void slices(const PluginHost& plugin, const mortise_slice** out, uint32_t* n) = 0;
  // A master was written: its compute copy is cast again.
  virtual void publish(const mortise_param& p) = 0;
  // The model on a batch, without a graph; results are owned by the caller.
  virtual void forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n) = 0;
};

}  // namespace mortise
