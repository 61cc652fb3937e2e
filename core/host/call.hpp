// Calls: chains of wrappers around a provider, the frame that a call runs in, and calls that are kept to be run again.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/model/declaration.hpp"
#include "mortise/autograd.h"
#include "mortise/call.h"

namespace mortise {

struct PluginHost;

// Which segment is under way, and how often each of its layers was called so far: with these a site of random bits, or
// a kept result, is found again by a replay that starts the segment anew.
struct SegmentFrame {
  int segment = -1;
  std::vector<std::pair<uint32_t, uint32_t>> calls;
  uint32_t count(uint32_t layer);  // 0 for the first call of this layer
};

// One tensor that a pair saved for its backward.
struct SavedEntry {
  uint32_t from = 0, index = 0;
  at::Tensor tensor;      // own tensors; NULL for inputs and outputs
  at::ScalarType cast{};  // SAVE_CAST: to what
  uint32_t version = 0;   // on a tape, of an own tensor: to notice that it was written since
};

// What the operators named by `keep` gave in the first pass, for the replay.
struct Tape {
  struct Record {
    std::vector<at::Tensor> results;
    std::vector<uint32_t> versions;  // of the results, to notice that one was written since
    std::vector<SavedEntry> saved;
    std::vector<mortise_param*> uses;
  };
  std::vector<int> points;  // of the operators to keep
  std::unordered_map<uint64_t, Record> records;
  bool keeps(int point) const;
  static uint64_t key(uint32_t layer, uint32_t nth) { return uint64_t{layer} << 32 | nth; }
};

// A term of the loss of one micro-batch; its sum is part of the graph.
struct Term {
  std::string name, unit;
  double weight = 0;
  at::Tensor sum;
  bool of_segments = false;  // given inside the model, not by a wrapper around it
  std::string by;            // whose id
};
using Terms = std::vector<Term>;

// Who keeps what is saved for backward (autograd.h).
struct Keeper {
  const mortise_saver* functions;
  void* self;
  PluginHost* plugin;
};

// What surrounds a call on this thread. Frames are on the stack, linked outwards.
struct Frame {
  mortise_call* call = nullptr;
  Frame* outer = nullptr;
  SegmentFrame* segment = nullptr;
  Tape* tape = nullptr;
  std::vector<mortise_param*>* uses = nullptr;  // inside a pair: the parameters that it used
  uint32_t nth = 0;                             // operators: which call of this layer within the segment
  Terms* terms = nullptr;                       // where this micro-batch's terms of the loss go
  const Keeper* keeper = nullptr;               // NULL: saved tensors stay where they are
};
Frame* current_frame();

// Where a call stood, copied: a kept call and the node of a pair stand there again, each time from the same count of
// calls.
struct CapturedFrame {
  SegmentFrame segment;
  bool in_segment = false;
  uint32_t nth = 0;
  Terms* terms = nullptr;
  explicit CapturedFrame(const Frame* f);
  Frame frame(SegmentFrame& counts) const;
};

// Sets this thread's frame for a scope.
class FrameScope {
 public:
  explicit FrameScope(Frame& f);
  ~FrameScope();
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  Frame* previous_;
};

using CoreFunction = std::function<void(mortise_call&)>;

// A call of `point` in the frame `from` (NULL: none), without arguments and results yet.
mortise_call make_call(const Frame* from, uint32_t point, mortise_str path);
// Throws PluginError: a plugin gave it, and it is none of this interface.
void check_call(const mortise_call* call);
void set_values(mortise_call& call, const mortise_value* args, uint32_t n_args, mortise_value* results,
                uint32_t n_results);
// The last link of an operator's chain, in pair.cpp: forward with autograd off, and the node that calls backward.
// Throws.
void run_operator(const mortise_next& link, mortise_call& call);
// Of results that nobody will take: frees them and leaves NONE.
void release_results(mortise_value* results, uint32_t n);
// "linear at h.0.fc", for errors.
std::string describe(const mortise_next& link, const mortise_call& call);

// Runs a chain from `link` on; throws PluginError, and then no results are left.
void invoke(const mortise_next* link, mortise_call& call);
// The same in a given frame (its `call` is set here).
void invoke(const mortise_next* link, mortise_call& call, Frame frame);

extern const mortise_call_api kCallApi;

}  // namespace mortise

// One link of a chain; lives as long as the run. Exactly one of wrap, call, op and core is set.
struct mortise_next {
  mortise::PluginHost* plugin = nullptr;  // NULL: the core
  void* self = nullptr;
  mortise_wrap_fn wrap = nullptr;
  mortise_call_fn call = nullptr;
  const mortise_operator* op = nullptr;
  mortise::CoreFunction core;
  mortise_next* next = nullptr;
  std::string point;
};
