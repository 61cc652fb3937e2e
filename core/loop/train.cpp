// Training: steps until the run's length, records of what happened, evaluation on the way, and an orderly end.
#include <cmath>
#include <cstdio>

#include "core/base/text.hpp"
#include "core/host/error.hpp"
#include "core/loop/build.hpp"
#include "core/loop/records.hpp"
#include "core/loop/saver.hpp"

namespace mortise {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// What happened since the last step record that was due.
struct Interval {
  Clock::time_point since = Clock::now();
  int64_t samples = 0, tokens = 0;
  double data_wait_s = 0;
};

// A training under way.
class Training {
 public:
  Training(Run::Parts& p, const std::function<Interrupt()>& interrupt);
  int run();

 private:
  void notify(const RecordBuilder& r, Point also = kRecord);
  void begin();
  void step();
  bool evaluate();  // true: the best so far, and somebody wants to keep it
  void sample();
  // Tells what came of saves; false if the last one did not succeed.
  bool saved(bool wait);
  int end(int exit, const std::string& reason);
  bool finished() const { return applied() >= p_.lengths.run; }
  int64_t applied() const { return p_.services.clock.applied; }
  std::string last_checkpoint() const {
    return saver_.last_step() < 0 ? "" : "; last checkpoint is step " + with_commas(saver_.last_step());
  }
  void warn_of_parameters_without_gradient();

  Run::Parts& p_;
  const std::function<Interrupt()>& interrupt_;
  Every log_every_, eval_every_;
  Saver saver_;
  bool last_save_ok_ = true;
  Interval interval_;
  Clock::time_point started_ = Clock::now();
  double spent_on_steps_ = 0;
  Progress before_best_;
  double last_loss_ = NAN;
  int64_t evaluated_at_ = -1, begun_at_ = 0;
};

Training::Training(Run::Parts& p, const std::function<Interrupt()>& interrupt)
    : p_(p), interrupt_(interrupt), saver_(p), begun_at_(p.services.clock.applied) {
  log_every_ = Every(p.manifest.get("log", "every"), "log.every", p.lengths);
  const Value& every = p.manifest.get("eval", "every");
  if (p.feed->samples("validation") == 0) return;
  Value default_value;
  default_value.data = Amount{1, Unit::kEpochs};
  eval_every_ = Every(every.is_set() ? every : default_value, "eval.every", p.lengths);
}

void Training::notify(const RecordBuilder& r, Point also) {
  RecordBuilder columns = r;  // listeners may add some, for those after them
  mortise_record record = columns.record();
  mortise_event e{};
  e.record = &record;
  if (also != kRecord) p_.chains.notify(also, e);
  p_.services.add_column = [&](std::string_view name, const mortise_value& v) {
    record = columns.value(name, v).record();
  };
  struct Closing {  // also after a listener that failed
    Services& services;
    ~Closing() { services.add_column = nullptr; }
  } const closing{p_.services};
  p_.chains.notify(kRecord, e);
}

void Training::begin() {
  const Summary& s = p_.summary;
  RecordBuilder r("run");
  r.text("run", s.run).text("model", s.model);
  if (!s.weights.empty()) r.text("weights", s.weights);
  r.text("data", s.data).text("device", s.device).text("batch", s.batch).text("dir", p_.request.dir);
  r.text("name", p_.manifest.name).text("plan", p_.plan.hash);
  r.integer("step", applied()).integer("steps", s.steps).integer("parameters", s.parameters);
  notify(r, kRunBegin);
}

void Training::warn_of_parameters_without_gradient() {
  std::vector<std::string> names;
  for (const auto& s : p_.host.parameters().all())
    if (s.declared->info.trainable && !s.has_gradient) names.push_back(s.declared->name);
  if (names.empty()) return;
  const std::string rest = names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "";
  notify(RecordBuilder("note")
             .text("text",
                   "trainable, but without a gradient in the first step: " + names[0] + rest + "; they are not updated")
             .text("level", "warning"));
}

void Training::step() {
  const auto before = Clock::now();
  const StepReport r = p_.step->run();
  spent_on_steps_ += seconds_since(before);
  const mortise_clock& c = p_.services.clock;
  if (c.attempted == 1) warn_of_parameters_without_gradient();
  if (r.applied) {
    if (std::isnan(p_.progress.first_loss)) p_.progress.first_loss = r.loss;
    last_loss_ = r.loss;
  }
  interval_.samples += r.samples;
  interval_.tokens += r.tokens;
  interval_.data_wait_s += r.data_wait_s;
  const bool due = (r.applied && log_every_.due(applied())) || finished();
  const double seconds = seconds_since(interval_.since);
  RecordBuilder record("step");
  record.integer("step", r.applied ? applied() : applied() + 1).integer("of", p_.lengths.run);
  record.number("loss", r.loss).number("lr", r.lr).number("grad_norm", r.norm);
  record.integer("samples", c.samples)
      .integer("tokens", c.tokens)
      .integer("epoch", c.epoch)
      .integer("micros", c.micros);
  record.integer("due", due).integer("skipped", !r.applied);
  if (!r.applied) record.text("skipped_parameter", r.skipped_parameter);
  for (const auto& [name, value] : r.metrics) record.number(name, value);
  if (due) {
    record.number("samples_per_s", static_cast<double>(interval_.samples) / seconds);
    if (interval_.tokens) record.number("tokens_per_s", static_cast<double>(interval_.tokens) / seconds);
    record.text("throughput_unit", interval_.tokens ? "tok" : "samples");
    record.number("data_wait_share", interval_.data_wait_s / seconds);
    record.number("left_s",
                  spent_on_steps_ / static_cast<double>(c.attempted) * static_cast<double>(p_.lengths.run - applied()));
    int64_t used = 0, peak = 0, total = 0;
    p_.device.call(&mortise_device::memory, "memory", &used, &peak, &total);
    record.integer("memory_bytes", used).integer("memory_peak_bytes", peak).integer("memory_total_bytes", total);
  }
  notify(record);
  if (due) interval_ = {};
}

bool Training::evaluate() {
  const Measured m = p_.evaluate();
  const double loss = m.values.empty() ? NAN : m.values[0].second;
  evaluated_at_ = applied();
  const bool best = p_.manifest.get("checkpoint", "best").is_set() && saver_.can_save() &&
                    !(loss >= p_.progress.best) && std::isfinite(loss);
  if (best) {
    before_best_ = p_.progress;
    p_.progress.best = loss;
    p_.progress.best_step = applied();
  }
  RecordBuilder r("eval");
  r.integer("step", applied()).integer("of", p_.lengths.run);
  for (const auto& [name, value] : m.values) r.number(name, value);
  r.integer("samples", m.samples);
  if (m.tokens > 0) r.integer("tokens", m.tokens);
  notify(r.number("seconds", m.seconds).integer("best", best));
  interval_ = {};
  return best;
}

void Training::sample() {
  std::string text;
  p_.sample({}, [&](std::string_view piece) { text += piece; });
  notify(RecordBuilder("sample").integer("step", applied()).text("text", text));
}

bool Training::saved(bool wait) {
  for (const Saved& s : saver_.outcomes(wait)) {
    last_save_ok_ = !s.failure;
    if (s.failure) {
      Diagnostic d = *s.failure;
      const int64_t last = saver_.last_step();
      d.effect = "training goes on; " + (last < 0 ? std::string("nothing is saved yet")
                                                  : "step " + with_commas(last) + " is kept and is still the latest");
      if (d.message.find("space") != std::string::npos)
        d.fixes = {"free space; [checkpoint] keep = 1 keeps one checkpoint less"};
      if (p_.progress.best_step == s.step)
        p_.progress = before_best_;  // what was not saved is not the best that there is
      if (p_.request.warn) p_.request.warn(d);
      continue;
    }
    if (!s.background)
      interval_.since += std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(s.seconds));  // has a line of its own
    RecordBuilder r("saved");
    r.integer("step", s.step)
        .integer("bytes", s.bytes)
        .number("seconds", s.seconds)
        .integer("background", s.background)
        .text("path", s.path);
    notify(r);
  }
  return last_save_ok_;
}

// Somebody who stops a run wants to go on with it; a run that a guard stopped is not worth going on with.
int Training::end(int exit, const std::string& reason) {
  const bool validates = p_.feed->samples("validation") > 0;
  if (exit == kExitOk && validates && p_.manifest.get("eval", "at_end").as_bool() && evaluated_at_ != applied())
    evaluate();
  if (exit == kExitOk && p_.sampler) sample();
  if (exit == kExitOk ? p_.manifest.get("checkpoint", "at_end").as_bool() : exit != kExitGuard) saver_.save();
  if (!saved(true) && exit == kExitOk) exit = kExitIo;
  RecordBuilder r("end");
  r.integer("steps", applied()).integer("of", p_.lengths.run).number("seconds", seconds_since(started_));
  r.number("loss_first", p_.progress.first_loss).number("loss_last", last_loss_);
  r.text("dir", p_.request.dir).integer("exit", exit);
  if (!reason.empty()) r.text("reason", reason);
  if (exit == kExitOk && p_.sampler && !p_.request.dir.empty())
    r.text("next", "mortise sample " + p_.request.dir + " --prompt \"The core\"");
  notify(r, kRunEnd);
  return exit;
}

int Training::run() {
  try {
    begin();
    if (begun_at_ == 0 && p_.feed->samples("validation") > 0 && p_.manifest.get("eval", "at_start").as_bool())
      evaluate();
    interval_ = {};
    while (!finished()) {
      const int64_t before = applied();
      step();
      const bool new_step = applied() > before;  // a skipped one is no reason to do anything twice
      const bool improved = new_step && eval_every_.due(applied()) && evaluate();
      if ((new_step && saver_.due(applied())) || improved) saver_.save();
      saved(false);
      const Services& s = p_.services;
      if (s.requested == MORTISE_STOP) return end(kExitOk, s.reason);
      if (s.requested == MORTISE_ABORT) {
        end(kExitGuard, s.reason);
        const std::string again = saver_.last_step() < 0 ? "" : "mortise resume " + p_.request.dir + " ";
        Diagnostic d = trouble(kExitGuard, "diverged", s.reason,
                               "step " + with_commas(applied() + 1) + ", asked for by " + s.requested_by,
                               "a lower rate: " + again + "--set optimizer.lr=…, or look at the data of these steps");
        d.effect = "stopped; nothing of these steps was applied" + last_checkpoint();
        throw Failure(d);
      }
      switch (interrupt_()) {
        case Interrupt::kNone: break;
        case Interrupt::kSave: saver_.save(); break;
        case Interrupt::kInterrupt: return end(kExitInterrupted, "interrupted");
        case Interrupt::kTerminate: return end(kExitResumable, "terminated");
      }
    }
    return end(kExitOk, "");
  } catch (const PluginError& e) {
    // Listeners may still have files to close; what they say now is second to what went wrong.
    mortise_event event{};
    event.outcome = e.status();
    try {
      p_.chains.notify(kRunEnd, event);
    } catch (const PluginError&) {
    }
    Diagnostic d = p_.plugins.diagnose(e);
    const std::string where = "step " + with_commas(p_.services.clock.attempted + 1);
    d.at = d.at.empty() ? where : where + "; " + d.at;
    d.effect = "step " + with_commas(p_.services.clock.attempted + 1) + " was not applied; the run stopped" +
               last_checkpoint();
    if (saver_.last_step() >= 0) d.fixes.push_back("mortise resume " + p_.request.dir);
    throw Failure(d);
  }
}

}  // namespace

int Run::Parts::train(const std::function<Interrupt()>& interrupt) { return Training(*this, interrupt).run(); }

}  // namespace mortise
