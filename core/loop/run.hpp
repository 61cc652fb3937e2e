// A run: the plan made real. Plugins loaded, the model declared and allocated, chains built; then trained, evaluated,
// sampled.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plan/plan.hpp"
#include "formats/file.hpp"

namespace mortise {

enum class Purpose {
  kPlan,  // declared only: it can neither train nor sample
  kUse,   // parameters, without gradients and states
  kTrain,
};

struct RunRequest {
  const Manifest* manifest = nullptr;  // must outlive the run, as the plan
  const Plan* plan = nullptr;
  std::string probe;  // the mortise-probe helper
  std::string dir;    // the run directory, made already; "": nothing is written (plan, sample)
  Purpose purpose = Purpose::kTrain;
  std::string weights;     // a safetensors file, or a folder of Hugging Face's, to start from; "": random from run.seed
  std::string checkpoint;  // the folder of a verified checkpoint to go on from; "": from the beginning
  std::string split = "validation";  // which one an evaluation takes; "": there will be none, and no data is read
  std::function<void(const Diagnostic&)> warn;  // what a person should hear while training goes on
};

// What is known once the model is declared: for `plan` and for the first lines of a training.
struct Summary {
  std::string run, model, weights, data, device, batch;  // texts of the lines
  int64_t parameters = 0, steps = 0, steps_per_epoch = 0, tokens_per_step = 0, samples_per_step = 0;
  int micros = 1, ranks = 1;
  int64_t weights_bytes = 0, gradients_bytes = 0, states_bytes = 0, casts_bytes = 0;
  int64_t copy_bytes = 0;                      // in host memory, for saves in the background
  std::vector<std::string> groups;             // "146 tensors, lr 1e-03, weight decay 0.01: FAMILY.NAME"
  std::map<std::string, std::string> details;  // by plugin id, beside it in `plan`
  std::vector<std::string> parameter_lines;    // `plan --weights`: name, sizes, role, dtype
};

// What an evaluation found.
struct Measured {
  std::vector<std::pair<std::string, double>> values;  // "eval.loss" first
  int64_t samples = 0, tokens = 0;                     // counted; 0: the data has none
  std::string about;                                   // the data, as its plugin calls it
  double seconds = 0;
};

// What a person or a scheduler asked for meanwhile; polled between steps.
enum class Interrupt { kNone, kSave, kInterrupt, kTerminate };

struct SampleRequest {
  std::string prompt;       // "": the plugin's own
  int tokens = 0;           // 0: the plugin's own
  double temperature = -1;  // negative: the plugin's own
  int top_k = -1;
  uint64_t seed = 0;
};

// What is wrong with a file of somebody else's format.
Diagnostic diagnostic_of(const FormatError& error);

class Run {
 public:
  // Throws Failure.
  explicit Run(RunRequest request);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Summary& summary() const;
  // Trains to the end, or to an interrupt; the exit code. Throws Failure.
  int train(const std::function<Interrupt()>& interrupt);
  // On the split of the request. Throws Failure.
  Measured evaluate();
  // Pieces of text go to `emit` as they come.
  void sample(const SampleRequest& request, const std::function<void(std::string_view)>& emit);
  bool can_sample() const;
  int64_t step() const;  // applied so far

  struct Parts;  // build.hpp

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace mortise
