// One step: window, batches, their placing and their counts before it; gradients, verdict, transform, optimizers and
// commit inside it, which ask the host for nothing; its report, which comes when the device has got there.
#pragma once
#include <deque>
#include <optional>

#include "core/abi/listeners.hpp"
#include "core/loop/passes.hpp"
#include "core/loop/ranks.hpp"
#include "core/loop/reports.hpp"
#include "core/loop/update.hpp"
#include "mortise/objects.h"

namespace mortise {

class Step {
 public:
  struct Parts {
    Host& host;
    Chains& chains;
    const Listeners& listeners;
    Passes& passes;
    Samples& samples;
    Ledger& ledger;
    std::deque<Optimizer>& optimizers;
    Provided<mortise_replicas> replicas;
    int report_depth = 0;  // steps that may be under way while their reports are not read
  };
  // Provides `step` and `gradients` to the chains.
  explicit Step(const Parts& parts);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Begins a step. The clock's `attempted` has it when this returns; `applied`, `samples` and `tokens` have it when its
  // report was taken.
  void run();
  // The next report, in order; with `now`, waits for it. Nothing: none is due, or there is none.
  std::optional<StepReport> take_report(bool now);
  // What comes before the next step, such as an evaluation, is no part of the steps.
  void pause() { reports_.pause(); }
  // Steps that were begun and whose reports were not taken: `applied` may be as many more by now.
  int under_way() const { return reports_.under_way(); }
  // The global gradient norm in true units, float64, 0-dim; computed once a step.
  const at::Tensor& norm();
  // Did the step that was begun last change the parameters?
  bool is_updated() const { return is_updated_; }
  // Between step.begin and step.end.
  bool is_under_way() const { return is_under_way_; }
  // A number for the record of the step under way. Throws PluginError: there is none, or the name was given already.
  void report(Reported<at::Tensor> number);
  // What the call of `step` left here, kept for the process; and the same again, for a step that was played instead of
  // called. Throws PluginError: `step` is not under way, or nothing was recorded under this number.
  uint64_t recorded();
  void replayed(uint64_t token);
  // Throws PluginError: a plugin gave a tensor of the model or of an optimizer another type or shape than the plan has.
  void check_tensors(const std::string& when) const;
  // The first parameter whose gradient is not finite; "" if there is none. Only while no later step was begun.
  std::string first_nonfinite();

  // Micro-batches consumed since the beginning.
  int64_t cursor() const { return cursor_; }
  void set_cursor(int64_t consumed) { cursor_ = consumed; }

 private:
  int64_t window();
  void load_window();
  void gradients(const mortise_call& call);
  void update();
  void forget_gathered();
  StepScalars scalars();

  // What a call of `step` leaves beside numbers on the device.
  struct Recording {
    at::Tensor norm, squares;
    std::vector<bool> given, has_gradient;       // of terms, of parameters
    std::vector<at::Tensor> own_grads;           // of parameters
    std::vector<Reported<at::Tensor>> reported;  // inside the call
  };

  Parts p_;
  Services& services_;
  const Ranks ranks_;
  std::vector<bool> written_;  // parameters whose optimizer writes the compute copy itself
  std::vector<BatchPtr> batches_;
  Denominators denominators_;
  TermSums sums_;
  std::string names_;          // of the last step's sums, which ranks compare in the next
  at::Tensor norm_, squares_;  // `squares_`: of what ranks have in parts, one after another, over all
  bool has_gradients_ = false, is_updated_ = false;  // of this step
  int gradients_run_ = 0;                            // how often wrappers of `gradients` went on in it
  bool dtypes_are_checked_ = false;                  // of the first step of this process
  std::vector<Reported<at::Tensor>> reported_;
  std::ptrdiff_t n_reported_before_ = 0;  // `step` was called
  bool is_under_way_ = false;
  Reports reports_;
  StepReport begun_;
  std::deque<Recording> recordings_;
  int64_t cursor_ = 0;
};

}  // namespace mortise
