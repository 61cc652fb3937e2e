#include "core/loop/train.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/declare/join.hpp"

namespace mortise {
namespace {

constexpr int64_t kMostSkipped = 1'000;  // where no guard ends a run that changes nothing any more

// What goes wrong here is second to what went wrong.
template <class Body>
void try_to(const Body& body) {
  try {
    body();
  } catch (const Failure&) {
  } catch (const std::exception&) {
  }
}

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

}  // namespace

Training::Training(const TrainParts& parts, const TrainOptions& options)
    : p_(parts), o_(options), services_(parts.host.services), ranks_(services_), log_every_(options.log_every),
      eval_every_(validates() ? options.eval_every : Period{}), save_every_(saves() ? options.save_every : Period{}),
      begun_at_(services_.clock.applied), attempted_at_(services_.clock.attempted), first_loss_(options.first_loss),
      evaluated_at_(options.evaluated) {}

int Training::run(const Interrupts& interrupt) {
  interrupt_ = interrupt;
  try {
    return train();
  } catch (const Failure& f) {
    if (!is_ended_) close_after_error(f.diagnostic.exit == kExitPlugin ? MORTISE_E_PLUGIN : MORTISE_E_IO);
    throw;
  } catch (const std::exception&) {
    fail(as_thrown(status_of_exception()));
  }
}

int Training::train() {
  begin();
  if (begun_at_ == 0 && validates() && o_.eval_at_start) evaluate();
  // Of a step whose evaluation was given up when the process before this one had to end. Its checkpoint is to say that
  // it is made now, as one of a run that was never stopped does.
  if (begun_at_ > 0 && take_due_evaluation()) {
    evaluate();
    if (evaluated_at_ == applied()) save();
  }
  interval_ = {};
  for (;;) {
    saved(false);
    if (const int exit = exit_asked_for(); exit >= 0) return exit;
    if (applied() >= o_.length) return end(kExitOk, "");
    step();
  }
}

void Training::notify(const RecordBuilder& r, Point also) {
  RecordBuilder columns = r;  // listeners may add some, for those after them
  mortise_record record = columns.record();
  mortise_event e{};
  e.record = &record;
  services_.add_column = [&](std::string_view name, const mortise_value& v) {
    if (name.empty() || columns.has(name))
      throw PluginError(MORTISE_E_ARGUMENT, "the record has a column `" + std::string(name) + "` already");
    record = columns.value(name, v).record();
  };
  struct Closing {  // also after a listener that failed
    Services& services;
    ~Closing() { services.add_column = nullptr; }
  } const closing{services_};
  if (also != kRecord) p_.listeners.notify(also, e);
  p_.listeners.notify(kRecord, e);
}

void Training::begin() {
  const Summary& s = o_.summary;
  RecordBuilder r("run");
  r.text("run", s.run).text("model", s.model);
  if (!s.weights.empty()) r.text("weights", s.weights);
  r.text("data", s.data).text("device", s.device).text("batch", s.batch).text("dir", o_.dir);
  r.text("dtypes", s.dtypes);
  r.text("name", o_.name).text("plan", o_.plan_hash);
  r.integer("step", applied()).integer("steps", s.steps).integer("parameters", s.parameters);
  if (!o_.hosts.empty()) r.integer("hosts", static_cast<int64_t>(std::set(o_.hosts.begin(), o_.hosts.end()).size()));
  const FilterScope scope(services_, Filter::kScale);
  notify(r, kRunBegin);
}

// ---- steps ----

void Training::step() {
  const auto before = Clock::now();
  in_step_ = true;
  p_.step.run();
  in_step_ = false;
  take_reports(must_know_now());
  spent_on_steps_ += seconds_since(before);
}

// With steps under way, `applied` is known late. Whoever decides by it waits until it is known.
bool Training::must_know_now() const {
  const int64_t most = applied() + p_.step.under_way();
  return most >= o_.length || eval_every_.may_be_due(applied(), most) || save_every_.may_be_due(applied(), most);
}

void Training::take_reports(bool now) {
  while (const auto r = p_.step.take_report(now)) report(*r);
}

void Training::report(const StepReport& r) {
  warn_of_parameters_without_gradient(r.without_gradient);
  if (r.applied) {
    skipped_ = 0;
    if (std::isnan(first_loss_)) first_loss_ = r.loss;
    last_loss_ = r.loss;
    if (std::isfinite(r.loss)) p_.saver.confirm(applied() - 1);
  }
  ++interval_.steps;
  interval_.samples += r.samples;
  interval_.tokens += r.tokens;
  interval_.data_wait_s += r.data_wait_s;
  interval_.waited_s += r.waited_s;
  if (r.idle_s) interval_.idle_s = interval_.idle_s.value_or(0) + *r.idle_s;
  const mortise_clock& c = services_.clock;
  const bool due = (r.applied && log_every_.due(applied())) || applied() >= o_.length;
  RecordBuilder record("step");
  record.integer("step", r.applied ? applied() : applied() + 1).integer("of", o_.length);
  record.number("loss", r.loss).number("lr", r.lr).number("grad_norm", r.norm);
  record.integer("samples", c.samples)
      .integer("tokens", c.tokens)
      .integer("epoch", r.epoch)
      .integer("micros", r.micros);
  record.integer("due", due).integer("skipped", !r.applied);
  // Once a later step was begun, the gradients are not those of this one any more.
  if (!r.is_counted) record.text("skipped_reason", "no sample of it has anything to learn");
  else if (!r.applied) record.text("skipped_parameter", p_.step.under_way() == 0 ? p_.step.first_nonfinite() : "");
  for (const auto& [name, unit, number] : r.metrics) {
    if (record.has(name))
      throw PluginError(MORTISE_E_ARGUMENT, "a plugin gives the number `" + name + "`, which each step has already");
    record.number(name, number, unit);
  }
  if (due) add_rates(record, std::max(std::chrono::duration<double>(r.ended - interval_.since).count(), 1e-9));
  notify(record);
  if (due) interval_ = {.since = r.ended};
  interval_.since -= r.late;
  uncounted_ = r.is_counted ? 0 : uncounted_ + r.micros;
  if (uncounted_ >= p_.samples.micros_per_epoch("train")) refuse_data();
  if (r.applied) act_on_applied_step();
  else if (++skipped_ >= kMostSkipped)
    abort({MORTISE_ABORT, with_commas(skipped_) + " steps in a row were skipped", "the core"});
}

// A whole epoch, which changed nothing: neither will the next one.
void Training::refuse_data() {
  end(kExitData, "there is nothing to learn");
  Diagnostic d = trouble(kExitData, "no_targets", "no sample of the training data has anything to learn",
                         p_.samples.about("train"),
                         "labels other than -100: is a prompt longer than data.sequence_length, or a column empty?");
  d.effect = applied() > begun_at_ ? "stopped after step " + with_commas(applied()) : "no step was applied";
  throw Failure(d);
}

void Training::add_rates(RecordBuilder& record, double seconds) {
  record.number("samples_per_s", static_cast<double>(interval_.samples) / seconds);
  if (interval_.tokens) record.number("tokens_per_s", static_cast<double>(interval_.tokens) / seconds);
  const int64_t tokens = interval_.tokens ? interval_.tokens : interval_.samples * o_.summary.tokens_per_sample;
  if (const double flop = static_cast<double>(tokens) * o_.summary.flop_per_token; flop > 0) {
    record.number("flop_per_s", flop / seconds);
    if (o_.summary.flop_per_s_at_most > 0) record.number("mfu", flop / seconds / o_.summary.flop_per_s_at_most);
  }
  record.text("throughput_unit", interval_.tokens ? "tok" : "samples");
  record.number("data_wait_share", std::min(interval_.data_wait_s / seconds, 1.0));
  if (interval_.idle_s) record.number("idle_share", std::min(*interval_.idle_s / seconds, 1.0));
  record.number("left_s", left_s());
  add_memory(record, seconds);
}

// Of the rank that has the most; and who keeps the others waiting. Every rank gets here after the same steps.
void Training::add_memory(RecordBuilder& record, double seconds) {
  int64_t used = 0, peak = 0, total = 0;
  p_.device.call(&mortise_device::memory, "memory", &used, &peak, &total);
  if (!ranks_.alone()) {
    const auto each = ranks_.of_each({static_cast<int64_t>(interval_.waited_s * 1e9), used, peak});
    const auto [least, most] = std::ranges::minmax_element(each[0]);  // the slowest waits least
    const auto fullest = std::ranges::max_element(each[2]);
    used = std::ranges::max(each[1]);
    peak = *fullest;
    record.integer("memory_rank", fullest - each[2].begin());
    if (!services_.records_steps) {
      const double lag_s = static_cast<double>(*most - *least) / 1e9;
      record.integer("slowest_rank", least - each[0].begin());
      record.number("slowest_lag_s", lag_s / static_cast<double>(interval_.steps));
      record.number("slowest_lag_share", std::min(lag_s / seconds, 1.0));
      if (!o_.hosts.empty()) record.text("slowest_host", o_.hosts.at(static_cast<size_t>(least - each[0].begin())));
    }
  }
  record.integer("memory_bytes", used).integer("memory_peak_bytes", peak).integer("memory_total_bytes", total);
}

// By the steps of this process, and never more than run.time_limit leaves.
double Training::left_s() const {
  const auto attempts = static_cast<double>(std::max<int64_t>(services_.clock.attempted - attempted_at_, 1));
  const double steps = spent_on_steps_ / attempts * static_cast<double>(o_.length - applied());
  if (o_.time_limit_s <= 0) return steps;
  return std::min(steps, std::max(o_.time_limit_s - seconds_since(started_), 0.0));
}

// A skipped step is no reason to do anything twice.
void Training::act_on_applied_step() {
  if (p_.step.under_way() > 0) return;  // the model is a later step's, and nothing was due: must_know_now
  const bool improved = take_due_evaluation() && evaluate();
  if (save_every_.due(applied()) || improved) save();
}

void Training::warn_of_parameters_without_gradient(const std::vector<std::string>& names) {
  if (names.empty()) return;
  const std::string rest = names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "";
  const std::string text = "trainable, but without a gradient in the first step: " + names[0] + rest;
  notify(RecordBuilder("note").text("text", text + "; without one they are not updated").text("level", "warning"));
}

// ---- evaluation, samples, saves ----

bool Training::take_due_evaluation() {
  if (evaluated_at_ == applied()) return false;
  const bool is_last = applied() >= o_.length && validates() && o_.eval_at_end;
  return eval_every_.due(applied()) || is_last;
}

double Training::value_of(const Measured& m, const std::string& name) {
  const auto found = std::ranges::find(m.values, name, [](const auto& value) { return value.first; });
  return found == m.values.end() ? NAN : found->second;
}

bool Training::is_better(const Measured& m) const {
  const double value = value_of(m, o_.best_by), best = p_.saver.best().value;
  return std::isfinite(value) && !(o_.larger_is_better ? value <= best : value >= best);
}

bool Training::evaluate() {
  is_evaluating_ = true;  // possibly other weights, until it is over
  p_.step.pause();
  const Measured m = p_.passes.evaluate([this] { return must_end_now(); });
  is_evaluating_ = false;
  if (!m.complete) return false;
  evaluated_at_ = applied();
  p_.saver.outdate();
  // What nothing was trained of is not worth keeping, and no checkpoint is made of it.
  const bool mine = is_better(m) && p_.saver.can_save() && applied() > 0;  // the first rank's, who knows the best
  if (mine) p_.saver.set_best({value_of(m, o_.best_by), applied()});
  const bool best = o_.best_by.empty() ? mine : ranks_.most(mine) > 0;
  RecordBuilder r("eval");
  r.integer("step", applied()).integer("of", o_.length);
  for (const auto& [name, value] : m.values) r.number(name, value);
  if (!m.is_counted)
    notify(RecordBuilder("note")
               .text("text", "no sample of the validation data has a target: eval.loss is no number")
               .text("level", "warning"));
  r.integer("samples", m.samples);
  if (m.tokens > 0) r.integer("tokens", m.tokens);
  notify(r.number("seconds", m.seconds).integer("best", best));
  interval_ = {};
  return best;
}

void Training::sample() { notify(RecordBuilder("sample").integer("step", applied()).text("text", p_.sample())); }

void Training::save() {
  if (!saves()) return;
  p_.step.pause();
  take_reports(true);
  p_.step.check_tensors("when it is to be saved");
  const std::string unlike = p_.gather();
  services_.must_be_there();  // what comes from a lost one is nothing
  if (!unlike.empty() && !std::exchange(has_warned_of_unlike_, true))
    notify(RecordBuilder("note")
               .text("text", unlike + " is not the same on every rank, and the first rank's is saved: what one rank "
                                      "changes alone has to be sent to the others")
               .text("level", "warning"));
  if (!p_.saver.can_save()) return;
  const mortise_clock& c = services_.clock;
  p_.saver.save(applied(), [&] {
    RunState s;
    s.attempted = c.attempted;
    s.applied = c.applied;
    s.samples = c.samples;
    s.tokens = c.tokens;
    s.cursor = p_.step.cursor();
    s.ranks = services_.mesh.data_size();
    s.step_samples = o_.step_samples;
    s.seed = p_.host.seed();
    s.scale = p_.ledger.scale.item<double>();
    s.loss_first = first_loss_;
    s.best = p_.saver.best().value;
    s.best_step = p_.saver.best().step;
    if (!o_.best_by.empty()) s.best_by = o_.best_by;
    s.evaluated = evaluated_at_;
    s.confirmed = p_.saver.confirmed();
    return p_.capture(s);
  });
}

bool Training::saved(bool wait) {
  for (const Saved& s : p_.saver.outcomes(wait)) {
    last_save_ok_ = !s.failure;
    if (s.failure) {
      report_failed_save(s);
      continue;
    }
    if (!s.background)  // it has a line of its own, and is no part of the steps
      interval_.since += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s.held_s));
    RecordBuilder r("saved");
    r.integer("step", s.step).integer("bytes", s.bytes).number("seconds", s.seconds);
    r.number("held_seconds", s.held_s);
    r.integer("background", s.background).text("path", s.path);
    notify(r);
  }
  return last_save_ok_;
}

void Training::report_failed_save(const Saved& s) {
  const bool is_told = s.step == std::exchange(told_failure_, s.step);  // it was tried once more, at the end
  if (!o_.warn || is_told) return;
  Diagnostic d = *s.failure;
  const int64_t last = p_.saver.last_step();
  const std::string kept =
      "step " + with_commas(last) + (p_.saver.has(last) ? " is kept and is still the latest" : " is gone");
  const bool is_over = is_ending_ || applied() >= o_.length;
  d.effect = is_over ? "training is over; " : "training goes on; ";
  d.effect += last >= 0 ? kept : is_over ? "nothing is saved" : "nothing is saved yet";
  o_.warn(d);
}

// ---- the end ----

// Not before one step: who goes on again and again under a limit that is too short still gets on.
bool Training::time_is_up() const {
  return has_stepped() && o_.time_limit_s > 0 && seconds_since(started_) >= o_.time_limit_s;
}

Training::Wish Training::wish(bool requests) {
  const auto own = [&] {
    // A launcher signals every rank, and some hear of it after others: for a second one save answers all.
    const Interrupt asked = interrupt_(ranks_.alone() ? Clock::time_point() : answered_ + std::chrono::seconds(1));
    const uint32_t request = services_.requests.strongest().what;
    if (request && requests) return request == MORTISE_ABORT ? Wish::kAbort : Wish::kStop;
    if (time_is_up()) return Wish::kTimeIsUp;
    return asked == Interrupt::kInterrupt                       ? Wish::kInterrupt
           : asked == Interrupt::kTerminate                     ? Wish::kTerminate
           : asked == Interrupt::kSave || save_every_.is_time() ? Wish::kSave
                                                                : Wish::kNone;
  };
  const auto agreed = static_cast<Wish>(ranks_.most(static_cast<int64_t>(own())));
  if (agreed == Wish::kSave) save_asked_ = true;
  return agreed;
}

bool Training::must_end_now() { return wish(/*requests=*/false) >= Wish::kTerminate; }

// What the first rank that asks for it has said, on every rank. Once a run.
Requests::Request Training::request_for(uint32_t what) const {
  const Requests::Request own = services_.requests.strongest();
  if (ranks_.alone()) return own;
  const auto asks = ranks_.of_each({own.what == what})[0];
  const auto first = static_cast<int32_t>(std::ranges::max_element(asks) - asks.begin());
  const std::string key = "request/" + std::to_string(what);
  const std::string by = own.by + " on rank " + std::to_string(first);
  return {what, said_by(services_, first, key, own.reason), said_by(services_, first, key + "/by", by)};
}

int Training::exit_asked_for() {
  Wish asked = wish();
  if (asked >= Wish::kStop) {
    take_reports(true);
    asked = wish();  // what came to light may be worse
  }
  switch (asked) {
    case Wish::kAbort: abort(request_for(MORTISE_ABORT));
    case Wish::kStop: return end(kExitOk, request_for(MORTISE_STOP).reason);
    case Wish::kTimeIsUp: return end(kExitResumable, "the time limit of run.time_limit is reached");
    case Wish::kInterrupt: return end(kExitInterrupted, "interrupted");
    case Wish::kTerminate: return end(kExitResumable, "terminated");
    case Wish::kSave:
    case Wish::kNone: break;
  }
  if (save_asked_ && has_stepped()) {  // before there is nothing to save that is not there already
    save();
    save_asked_ = false;
    answered_ = Clock::now();
    save_every_.restart();
  }
  return -1;
}

// Somebody who stops a run wants to go on with it; a run that a guard stopped, or that learned nothing, is not worth
// going on with.
int Training::end(int exit, const std::string& reason) {
  is_ending_ = true;
  take_reports(true);
  const bool evaluates = exit == kExitOk && validates() && o_.eval_at_end && evaluated_at_ != applied();
  const bool improved = evaluates && evaluate();
  if (exit == kExitOk && p_.sample) sample();
  if (exit == kExitOk && wish() == Wish::kAbort) abort(request_for(MORTISE_ABORT));
  if (exit == kExitOk ? o_.save_at_end || improved : exit != kExitGuard && exit != kExitData) save();
  if (exit == kExitOk && std::isfinite(last_loss_)) p_.saver.confirm(applied());  // no step will follow to say so
  if (!saved(true) && exit == kExitOk) exit = kExitIo;
  ranks_.most(0);  // who leaves before all is saved would be taken for lost, and the others ended
  const bool resumable = exit != kExitOk && p_.saver.last_step() >= 0;
  RecordBuilder r("end");
  r.integer("steps", applied()).integer("steps_here", applied() - begun_at_).integer("of", o_.length);
  r.number("seconds", seconds_since(started_));
  if (applied() > begun_at_) r.number("loss_first", first_loss_).number("loss_last", last_loss_);
  r.text("dir", o_.dir).integer("exit", exit).integer("resumable", resumable);
  if (!reason.empty()) r.text("reason", reason);
  if (exit == kExitOk && p_.sample && !o_.dir.empty())
    r.text("next",
           "mortise sample " + shell_word(o_.dir) + (o_.prompt.empty() ? "" : " --prompt " + shell_word(o_.prompt)));
  is_ended_ = true;
  notify(r, kRunEnd);
  return exit;
}

std::string Training::last_checkpoint() const {
  const int64_t last = p_.saver.last_step();
  return last < 0 ? "" : "; last checkpoint is step " + with_commas(last);
}

// The newest checkpoint may be one whose own update destroyed the model; the one to go back to was followed by a good
// step.
void Training::abort(const Requests::Request& request) {
  end(kExitGuard, request.reason);
  const int64_t good = p_.saver.newest_confirmed();
  std::string again;
  if (good >= 0) again = o_.resume_command + " --from " + std::to_string(good) + " ";
  Diagnostic d = trouble(kExitGuard, "diverged", request.reason,
                         "step " + with_commas(applied() + 1) + ", asked for by " + request.by,
                         "a lower rate: " + again + "--set optimizer.lr=…, or look at the data of these steps");
  d.effect = applied() > 0 ? "stopped after step " + with_commas(applied()) : "stopped before the first step";
  if (good >= 0) d.effect += "; step " + with_commas(good) + " is the last good checkpoint";
  throw Failure(d);
}

// Listeners may still have files to close, and a save under way may become the newest checkpoint.
void Training::close_after_error(mortise_status status) {
  try_to([&] { saved(true); });
  mortise_event event{};
  event.outcome = status;
  try_to([&] { p_.listeners.notify(kRunEnd, event); });
}

void Training::fail(const PluginError& e) {
  const int64_t begun = applied() + p_.step.under_way();
  Diagnostic d = p_.instances.diagnose(e);
  // Between steps the model is whole, and worth keeping. Other ranks know of no failure, and would not join in a save.
  const bool is_there = d.code != "device_lost" && ranks_.alone();
  const bool is_whole = is_there && !in_step_ && !is_evaluating_ && p_.step.under_way() == 0 && !is_ending_;
  if (is_whole && has_stepped() && !p_.saver.has(applied())) try_to([&] { save(); });
  close_after_error(e.status());
  const std::string step = "step " + with_commas(begun + 1);
  const std::string when = in_step_ ? step : begun > 0 ? "after step " + with_commas(begun) : "before the first step";
  d.at = when + (d.at.empty() ? "" : "; " + d.at);
  const char* lost = p_.step.is_updated() ? " is in no checkpoint; " : " was not applied; ";
  d.effect = (in_step_ ? step + lost : "") + "the run stopped" + last_checkpoint();
  if (p_.saver.last_step() >= 0) d.fixes.push_back(o_.resume_command);
  throw Failure(d);
}

}  // namespace mortise
