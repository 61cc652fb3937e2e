// Training: steps until the run's length, records of what happened, evaluation and saves on the way, and an orderly
// end.
#pragma once
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "core/abi/exchange.hpp"
#include "core/declare/summary.hpp"
#include "core/loop/every.hpp"
#include "core/loop/ranks.hpp"
#include "core/loop/records.hpp"
#include "core/loop/step.hpp"
#include "core/store/run_state.hpp"
#include "core/store/saver.hpp"

namespace mortise {

struct TrainOptions {
  int64_t length = 0;        // applied steps
  int64_t step_samples = 0;  // of a whole step, of all ranks
  Period log_every, eval_every, save_every;
  bool eval_at_start = true, eval_at_end = true, save_at_end = true;
  std::string best_by;  // [checkpoint] best: the number by which evaluations are compared, to save the best so far;
                        // "": none
  bool larger_is_better = false;  // of that number
  bool first_rank_saves = false;  // the others then take part, and give it what they hold
  double time_limit_s = 0;        // of this process; 0: none
  std::string dir, name, plan_hash;
  std::vector<std::string> hosts;  // of several ranks, of each
  std::string resume_command;      // how a person goes on with the run
  std::string prompt;              // what to propose for a sample; "": nothing
  Summary summary;
  double first_loss = NAN;                      // of the run, if it went on
  int64_t evaluated = -1;                       // likewise: the last step that was evaluated
  std::function<void(const Diagnostic&)> warn;  // what a person should hear while training goes on
};

// What a training stands on; all of it outlives the training.
struct TrainParts {
  Host& host;
  const Listeners& listeners;
  const Instances& instances;
  Samples& samples;
  Passes& passes;
  Step& step;
  Saver& saver;
  Ledger& ledger;
  Provided<mortise_device> device;
  std::function<Snapshot(const RunState&)> capture;
  std::function<std::string()> sample;  // a text from the model; empty: nothing samples
  // What the first rank captures of the others; called on every rank. Returns what is not the same on all of them.
  std::function<std::string()> gather = [] { return std::string(); };
};

class Training {
 public:
  Training(const TrainParts& parts, const TrainOptions& options);
  // To the end, or to an interrupt; the exit code. Throws Failure.
  int run(const Interrupts& interrupt);

 private:
  using Clock = std::chrono::steady_clock;
  // What happened since the last step record that was due.
  struct Interval {
    Clock::time_point since = Clock::now();
    int64_t steps = 0, samples = 0, tokens = 0;
    double data_wait_s = 0, waited_s = 0;
    std::optional<double> idle_s = {};  // of a device
  };

  // Does this rank take part in saves? It writes them, or gives the first rank, which does, what it holds.
  bool saves() const { return p_.saver.can_save() || (services_.world.rank > 0 && o_.first_rank_saves); }
  int train();
  void notify(const RecordBuilder& r, Point also = kRecord);
  void begin();
  // Begins a step, and deals with every report that is there.
  void step();
  bool must_know_now() const;
  void take_reports(bool now);
  void report(const StepReport& r);
  [[noreturn]] void refuse_data();
  void add_rates(RecordBuilder& record, double seconds);
  void add_memory(RecordBuilder& record, double seconds);
  void act_on_applied_step();
  bool take_due_evaluation();  // after this step
  // True: it was the best so far, and is to be kept. False also where it was given up.
  bool evaluate();
  static double value_of(const Measured& m, const std::string& name);  // NaN: it was not measured
  bool is_better(const Measured& m) const;
  void sample();
  void save();
  // Notifies of what came of saves; false if the last one did not succeed.
  bool saved(bool wait);
  void report_failed_save(const Saved& s);
  int end(int exit, const std::string& reason);
  // What somebody asked for; -1: nothing that ends the run.
  int exit_asked_for();
  // In rising strength. Of several ranks the strongest counts, and all hear of it at the same place.
  enum class Wish { kNone, kSave, kTerminate, kInterrupt, kTimeIsUp, kStop, kAbort };
  Wish wish(bool requests = true);  // of plugins, too
  Requests::Request request_for(uint32_t what) const;
  bool must_end_now();  // as a signal or the time limit has it
  [[noreturn]] void abort(const Requests::Request& request);
  void close_after_error(mortise_status status);
  [[noreturn]] void fail(const PluginError& e);
  void warn_of_parameters_without_gradient(const std::vector<std::string>& names);
  bool validates() const { return p_.samples.count("validation") > 0; }
  int64_t applied() const { return services_.clock.applied; }
  double left_s() const;
  bool has_stepped() const { return services_.clock.attempted > attempted_at_; }
  bool time_is_up() const;
  std::string last_checkpoint() const;

  TrainParts p_;
  TrainOptions o_;
  Services& services_;
  const Ranks ranks_;
  Every log_every_, eval_every_, save_every_;
  bool last_save_ok_ = true;
  bool is_ending_ = false;  // no step follows
  bool is_ended_ = false;   // listeners were told
  bool is_evaluating_ = false;
  int64_t skipped_ = 0;    // steps in a row
  int64_t uncounted_ = 0;  // micro-batches in a row of steps without anything to learn
  bool in_step_ = false;   // what fails now belongs to the step that was begun
  Interval interval_;
  Clock::time_point started_ = Clock::now();
  double spent_on_steps_ = 0;
  int64_t begun_at_ = 0, attempted_at_ = 0;  // when this process began
  double first_loss_ = NAN, last_loss_ = NAN;
  int64_t evaluated_at_ = -1;
  Interrupts interrupt_;
  bool save_asked_ = false;
  int64_t told_failure_ = -1;   // the step whose save failed last
  Clock::time_point answered_;  // when a save that was asked for had been made
  bool has_warned_of_unlike_ = false;
};

}  // namespace mortise
