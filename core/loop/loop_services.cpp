#include "core/loop/loop_services.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/host/handle.hpp"
#include "core/loop/records.hpp"

namespace mortise {

void RunServices::train(Ledger& ledger, Provided<mortise_replicas> replicas, Step& step) {
  ledger_ = &ledger;
  replicas_ = replicas;
  step_ = &step;
}

at::Tensor RunServices::one_number(mortise_tensor* handle, const std::string& what) {
  at::Tensor t = share(handle);
  if (!t.defined() || t.numel() != 1) throw PluginError(MORTISE_E_SHAPE, what + " is a tensor of one number");
  return t;
}

Ledger& RunServices::need_ledger() const {
  if (!ledger_) throw PluginError(MORTISE_E_ARGUMENT, "there is no ledger before the run begins");
  return *ledger_;
}

Step& RunServices::need_step() const {
  if (!step_) throw PluginError(MORTISE_E_ARGUMENT, "there is no step before the run begins");
  return *step_;
}

std::string RunServices::column_name(std::string_view name) {
  const std::string text(name);
  if (text.empty() || escape_control(text) != text)
    throw PluginError(MORTISE_E_ARGUMENT, "a number of a record has a name of characters that a line can show");
  return text;
}

// One of weight 0 is a column of each step's record.
std::string RunServices::term_name(std::string_view name, double weight) {
  std::string text = column_name(name);
  if (weight != 0 || !is_step_column(text)) return text;
  throw PluginError(MORTISE_E_ARGUMENT, "each step has a column `" + text + "` of the core's already");
}

const mortise_ledger& RunServices::ledger() { return need_ledger().c(); }
void RunServices::vote(mortise_tensor* ok) { need_ledger().vote(one_number(ok, "a vote")); }
void RunServices::multiply(mortise_tensor* factor) { need_ledger().multiply(one_number(factor, "a factor")); }

void RunServices::set_scale(mortise_tensor* scale) {
  const at::Tensor t = one_number(scale, "the factor of the loss");
  // Of a device that runs ahead nobody can know it yet.
  if (const double factor = t.is_cpu() ? t.item<double>() : 1; !(factor > 0) || std::isinf(factor))
    throw PluginError(MORTISE_E_ARGUMENT,
                      "the factor of the loss is above 0 and finite, this is " + formatted("%g", factor));
  need_ledger().set_scale(t);
}

void RunServices::report(std::string_view name, mortise_tensor* number, std::string_view unit) {
  Step& step = need_step();
  const std::string text = term_name(name, 0);
  step.report({text, std::string(unit), one_number(number, "the number `" + text + "` of a step")});
}

uint64_t RunServices::recorded() { return need_step().recorded(); }
void RunServices::replayed(uint64_t token) { need_step().replayed(token); }
void RunServices::metric(std::string_view name, double number) { passes_.metric(column_name(name), number); }

// Where a term is given.
static const Frame& frame_of_term() {
  const Frame* f = current_frame();
  if (!f || !f->terms) throw PluginError(MORTISE_E_ARGUMENT, "a term of the loss is given inside `forward` only");
  return *f;
}

static void must_train(const std::string& text, const at::Tensor& sum, double weight, bool wanted) {
  if (weight != 0 && wanted && !sum.requires_grad())
    throw PluginError(MORTISE_E_ARGUMENT,
                      "the term `" + text + "` depends on no trainable parameter; give it weight 0 to report it");
}

void RunServices::count_term(const Frame& f, const std::string& text, std::string_view unit, double weight,
                             const at::Tensor& sum) {
  const PluginCall* call = current_call();
  const std::string by(call ? call->plugin : std::string_view());
  // A wrapper of `forward` inside another that calls it again: the last counts, as of the segments.
  if (!f.segment)
    std::erase_if(*f.terms,
                  [&](const Term& other) { return other.name == text && other.by == by && !other.of_segments; });
  f.terms->push_back({text, std::string(unit), weight, sum, f.segment != nullptr, by});
}

void RunServices::term(std::string_view name, mortise_tensor* sum, std::string_view unit, double weight) {
  const Frame& f = frame_of_term();
  if (f.call->flags & MORTISE_REPLAY) return;  // counted in the first pass
  const std::string text = term_name(name, weight);
  const at::Tensor t = one_number(sum, "the term `" + text + "`, summed over the micro-batch,");
  // A pass whose graph is made again later keeps no graph now: the term would train nothing, and nobody would notice.
  if (weight != 0 && (f.call->flags & MORTISE_FIRST_PASS) && !t.requires_grad())
    throw PluginError(MORTISE_E_UNSUPPORTED,
                      "the term `" + text + "` is given inside a block that is computed again in backward, where it " +
                          "would train nothing; give it by attach_term, exclude this block there, or give the term " +
                          "weight 0");
  must_train(text, t, weight, (f.call->flags & MORTISE_GRAD) && at::GradMode::is_enabled());
  count_term(f, text, unit, weight, t);
}

void RunServices::attach_term(std::string_view name, mortise_tensor* carrier, mortise_tensor* sum,
                              std::string_view unit, double weight, mortise_tensor** out) {
  const Frame& f = frame_of_term();
  const std::string text = term_name(name, weight);
  const at::Tensor t = one_number(sum, "the term `" + text + "`, summed over the micro-batch,");
  const at::Tensor on = share(carrier);
  if (!on.defined() || !on.is_floating_point())
    throw PluginError(MORTISE_E_ARGUMENT, "the term `" + text + "` is attached to a tensor of floating-point numbers");
  const bool has_graph = (f.call->flags & MORTISE_GRAD) != 0;
  must_train(text, t, weight, has_graph);  // in a pair, too, which autograd does not look into
  // Its value counts once; backward comes to it through the carrier, not from the term.
  if (!(f.call->flags & MORTISE_REPLAY)) count_term(f, text, unit, weight, t.detach());
  *out = give(weight != 0 && has_graph ? passes_.attached(on, {text, std::string(unit), weight, t}) : on);
}

void RunServices::norm(mortise_tensor** out) {
  if (!step_) throw PluginError(MORTISE_E_ARGUMENT, "the norm is known after backward only");
  *out = give(step_->norm());
}

// Every trainable parameter, with what a plugin keeps beside some.
static std::vector<ParamStates> beside_all(Declaration& d, const std::vector<ParamStates>& some) {
  std::vector<ParamStates> all;
  for (mortise_param& p : d.params) {
    if (!p.info.trainable) continue;
    const auto own = std::ranges::find(some, &p, &ParamStates::param);
    all.push_back(own == some.end() ? ParamStates{&p, {}, p.shards.pieces} : *own);
  }
  return all;
}

States& RunServices::states_of(const PluginHost& plugin) {
  for (auto& [host, states] : kept_)
    if (host == &plugin) return states;
  const auto& kept = host_.services.kept;
  const auto own = std::ranges::find(kept, &plugin, &KeptTensors::host);
  const std::vector<ParamStates> some = own == kept.end() ? std::vector<ParamStates>() : own->beside;
  kept_.emplace_back(&plugin, States(beside_all(host_.declaration(), some), host_)).second.copy_masters();
  return kept_.back().second;
}

void RunServices::allocate_kept() {
  for (const KeptTensors& kept : host_.services.kept) states_of(*kept.host);
}

// Between micro-batches: inside one, layers compute with what would be written, and gradients are on their way.
static void only_between_micros(const char* what) {
  const Frame* f = current_frame();
  if (f && f->call && f->call->batch)
    throw PluginError(MORTISE_E_ARGUMENT, std::string(what) + " between micro-batches, not inside one");
}

void RunServices::slices(const PluginHost& plugin, const mortise_slice** out, uint32_t* n) {
  only_between_micros("slices are asked for");
  const bool in_step = step_ && step_->is_under_way();
  const auto& all = states_of(plugin).slices(in_step ? States::Which::kWithGradients : States::Which::kAll);
  *out = all.data();
  *n = static_cast<uint32_t>(all.size());
}

void RunServices::publish(const mortise_param& p) {
  only_between_micros("masters are published");
  host_.parameters().cast(p);
  if (p.is_sharded()) replicas_.call(&mortise_replicas::written, "written", const_cast<mortise_param*>(&p));
}

void RunServices::ready(mortise_param& p, int micro, bool last) {
  if (!replicas_) return;
  // Where others have a gradient and this rank has none, it adds nothing.
  if (ParameterState& s = host_.parameters().state(p);
      last && !s.has_gradient && !p.is_sharded() && replicas_.has(&mortise_replicas::layout))
    host_.parameters().gradient(s).zero_();
  replicas_.call(&mortise_replicas::ready, "ready", &p, int32_t{micro}, int32_t{last});
}

void RunServices::need(mortise_param& p, int segment, bool backward) {
  replicas_.call(&mortise_replicas::need, "need", &p, int32_t{segment}, int32_t{backward});
}

void RunServices::forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n) {
  passes_.forward(batch, mode, want, results, n, nullptr);
}

}  // namespace mortise
