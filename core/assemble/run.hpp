// A run as the command line sees it, without LibTorch's headers: assembled from a plan, then trained, evaluated or
// sampled.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/abi/exchange.hpp"
#include "core/assemble/changes.hpp"
#include "core/base/diagnostic.hpp"
#include "core/base/world.hpp"
#include "core/declare/summary.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plan/plan.hpp"
#include "core/store/checkpoint.hpp"
#include "mortise/program.h"

namespace mortise {

class Edge;

// The edge over LibTorch, where plugins find `program`; NULL: nobody runs the loop itself.
std::unique_ptr<Edge> new_host(const PointTable& points, uint64_t seed, const mortise_program* program);

enum class Purpose {
  kUse,    // parameters, without states: to evaluate and sample
  kTrain,  // everything
};

struct RunRequest {
  const Manifest* manifest = nullptr;  // must outlive the run, as the plan
  const Plan* plan = nullptr;
  std::string probe;                  // the mortise-probe helper
  std::string dir;                    // the run directory, made already; "": nothing is written
  std::string resume_command;         // how a person goes on with it
  Purpose purpose = Purpose::kTrain;  // of several ranks kUse is an evaluation
  std::string weights;  // a safetensors file, or a folder of Hugging Face's, to start from; "": random from run.seed
  std::function<void()> before_save = [] {};  // may throw Failure, which ends the training
  Fixed fixed;                                // what a checkpoint to train on from must not have otherwise
  // A verified one to go on from; without a path: from the beginning. Of several ranks the first one's counts.
  Found checkpoint;
  World world;
  std::string alike;                 // of several ranks each has the same
  std::string split = "validation";  // which one an evaluation takes; "": there will be none, and no data is read
  std::function<void(const Diagnostic&)> warn;  // what a person should hear while training goes on
  const mortise_program* program = nullptr;     // who runs the loop itself, if anybody does
};

class Run {
 public:
  // Throws Failure.
  explicit Run(RunRequest request);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Summary& summary() const;
  // Trains to the end, or to an interrupt; the exit code. Throws Failure.
  int train(const Interrupts& interrupt);
  // On the split of the request. Throws Failure.
  Measured evaluate();
  // Pieces of text go to `emit` as they come.
  void sample(const SampleRequest& request, const std::function<void(std::string_view)>& emit);
  bool can_sample() const;
  int64_t step() const;  // applied so far

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mortise
