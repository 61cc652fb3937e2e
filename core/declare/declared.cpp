#include "core/declare/declared.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <ranges>
#include <sstream>
#include <stdexcept>

#include "core/abi/fields.hpp"
#include "core/base/text.hpp"
#include "core/declare/device.hpp"
#include "core/declare/join.hpp"
#include "core/plan/facts.hpp"

namespace mortise {
namespace {

const Member& model_member(const Plan& plan) {
  return plan.members[static_cast<size_t>(plan.at[kModel].providers.back().member)];
}

// data.sequence_length, or what the model takes at most.
int64_t sequence_length_of(const Declared& d) {
  const Member& model = model_member(*d.plan);
  const Value* most = value_of_fact(model, "model", "context");
  const int64_t context = most ? most->as_int() : 0;
  const Value& stated = d.key("data", "sequence_length");
  if (!stated.is_set()) return context;
  if (context > 0 && stated.as_int() > context)
    throw Failure(mistake("sequence_too_long",
                          "data.sequence_length is " + stated.text() + ", " + model.info->schema.id +
                              " takes at most " + std::to_string(context),
                          stated.origin, "sequence_length = " + std::to_string(context)));
  return stated.as_int();
}

// Who asks for evaluations expects them; the keys that only the default states ask nothing.
void warn_of_evaluations(Declared& d) {
  if (d.samples->count("validation") > 0) return;
  const Value &every = d.key("eval", "every"), &at_start = d.key("eval", "at_start");
  for (const auto& [key, asked] : {std::pair("every", every.is_set()), std::pair("at_start", at_start.as_bool())}) {
    const Position& at = d.key("eval", key).origin;
    if (!asked || !at) continue;
    d.warnings.push_back(as_warning(mistake(
        "no_validation_data",
        std::string("eval.") + key + " asks for evaluations, and the run has nothing to evaluate on", at,
        std::string("[data] validation = 0.1 holds out a share of the training data; or leave `") + key + "` out")));
  }
}

void warn_of_no_evaluation(Declared& d, const Member& member, const std::string& does) {
  d.warnings.push_back(as_warning(
      mistake("no_validation_data", member.info->schema.id + " " + does + ", and the run has nothing to evaluate on",
              member.table->origin,
              "[data] validation = 0.1 holds out a share of the training data; or leave the plugin out")));
}

// The numbers that a plugin measures, and of each whether a larger one is better.
std::vector<std::pair<std::string, bool>> measured_by(const PluginInfo& info) {
  std::vector<std::pair<std::string, bool>> all;
  for (const auto& [fact, larger] : {std::pair("larger_is_better", true), std::pair("smaller_is_better", false)})
    for (const std::string& name : texts_of_fact(info, "metric", fact)) all.emplace_back(name, larger);
  return all;
}

// Whoever waits for a number of evaluations would wait for ever. The names of such numbers begin with "eval.".
void warn_of_listeners(Declared& d) {
  if (d.samples->count("validation") > 0) return;
  for (const Member& member : d.plan->members)
    for (const auto& [key, value] : member.table ? member.table->values : std::map<std::string, Value>())
      if (const auto* text = std::get_if<std::string>(&value.data); text && text->starts_with("eval."))
        warn_of_no_evaluation(d, member, "waits for " + *text);
}

// So does who switched on a metric of evaluations, unless it measures in training too.
void warn_of_metrics(Declared& d) {
  if (d.samples->count("validation") > 0) return;
  for (const Member& member : d.plan->members) {
    const Value* also = value_of_fact(member, "metric", "in_training");
    if (!member.table || (also && also->as_bool())) continue;
    std::vector<std::string> names;
    for (const auto& [name, larger] : measured_by(*member.info))
      if (name.starts_with("eval.")) names.push_back(name);
    if (!names.empty()) warn_of_no_evaluation(d, member, "measures " + join(names, ", "));
  }
}

// A best that would never be there, and nobody would hear of it.
void check_best(const Declared& d) {
  const Value& best = d.key("checkpoint", "best");
  if (!best.is_set()) return;
  const std::map<std::string, bool> measured = d.measured();
  if (!measured.contains(best.as_text())) {
    std::vector<std::string> names;
    for (const auto& [name, larger] : measured) names.push_back("\"" + name + "\"");
    throw Failure(mistake("not_measured", "nothing of this run measures `" + best.as_text() + "`", best.origin,
                          "best = " + either(names) + "; or switch on the plugin that measures it"));
  }
  if (d.samples->count("validation") > 0) return;
  throw Failure(mistake(
      "no_validation_data", "checkpoint.best is by " + best.as_text() + ", and the run has nothing to evaluate on",
      best.origin, "[data] validation = 0.1 holds out a share of the training data; or leave `best` out"));
}

void open_data(Declared& d, const DeclareRequest& request) {
  d.sequence_length = sequence_length_of(d);
  mortise_data_request ask{};
  ask.struct_size = sizeof ask;
  ask.sequence_length = d.sequence_length;
  ask.seed = d.edge->seed();
  d.data.call(&mortise_data::open, "open", static_cast<const mortise_data_request*>(&ask));

  fields_of(d.data);  // refuses what is none before samples are read

  SampleOptions o;
  o.train = request.train_samples;
  o.split = request.split;
  o.micro_batch_size = d.key("data", "micro_batch_size").as_int();
  o.eval_micro_batch_size = d.key("eval", "micro_batch_size").as_int();
  o.eval_samples = d.key("eval", "samples").as_int();
  o.shuffle = d.key("data", "shuffle").as_bool();
  o.drop_last = d.key("data", "drop_last").as_bool();
  o.validation = d.key("data", "validation").as_float();
  o.seed = d.edge->seed();
  o.rank = d.edge->services.mesh.data_rank();
  o.ranks = d.edge->services.mesh.data_size();
  d.samples = std::make_unique<Samples>(d.data, o);

  if (request.train_samples) check_best(d);
  if (request.train_samples) warn_of_evaluations(d), warn_of_listeners(d), warn_of_metrics(d);

  mortise_clock& clock = d.edge->services.clock;
  clock.ranks = o.ranks;
  clock.micro_batch_size = static_cast<int32_t>(o.micro_batch_size);
  clock.sequence_length = d.sequence_length;
}

// What wrappers of `load` do to the fields of the data, by their plugin.toml, from the inside outwards.
void change_fields(const Declared& d, std::map<std::string, int64_t>& facts) {
  for (const Attached& wrapper : std::views::reverse(d.plan->at[kLoad].wrappers)) {
    const PluginInfo& info = *d.plan->members[static_cast<size_t>(wrapper.member)].info;
    for (const std::string& name : texts_of_fact(info, "load", "removes")) facts.erase("field." + name);
    for (const std::string& name : texts_of_fact(info, "load", "adds")) facts["field." + name] = 1;
  }
}

// A prompt may have any of the tokenizer's ids, also where the data has none of them: no table of the model may end
// before one. `known`: what the data says, where the model's key says nothing.
void check_tokenizer(const Declared& d, int64_t known) {
  const Provided<mortise_tokenizer>& tokenizer = d.edge->services.tokenizer;
  const Value* stated = value_of_fact(*d.model.by->member, "model", "vocabulary");
  const int64_t model = stated ? stated->as_int() : known;
  int64_t size = 0;
  if (tokenizer) tokenizer.call(&mortise_tokenizer::size, "size", &size);
  if (model == 0 || size <= model) return;
  throw Failure(mistake("tokenizer_too_large",
                        tokenizer.by->id() + " has " + with_commas(size) + " tokens, " + d.model.by->id() +
                            " a vocabulary of " + with_commas(model),
                        tokenizer.by->member->table ? tokenizer.by->member->table->origin : Position{},
                        "the tokenizer that the data and the weights were made with"));
}

void declare_model(Declared& d) {
  Declaration& declaration = d.edge->declaration();
  const Provided<mortise_tokenizer>& tokenizer = d.edge->services.tokenizer;
  int64_t vocabulary = 0;
  d.data.call(&mortise_data::vocabulary, "vocabulary", &vocabulary);
  if (vocabulary == 0 && tokenizer) tokenizer.call(&mortise_tokenizer::size, "size", &vocabulary);
  if (vocabulary > 0) declaration.facts["vocabulary"] = vocabulary;
  declaration.classes = classes_of(d.data);
  if (!declaration.classes.empty()) declaration.facts["classes"] = static_cast<int64_t>(declaration.classes.size());
  declaration.facts["sequence_length"] = d.sequence_length;
  declaration.facts["micro_batch_size"] = d.key("data", "micro_batch_size").as_int();
  for (const auto& field : fields_of(d.data)) declaration.facts["field." + field.name] = 1;
  if (d.samples->count("validation") > 0) declaration.facts["validation"] = 1;
  for (const Member& member : d.plan->members)
    if (fact_of(*member.info, "labels", "are")) declaration.facts["labels_in_place"] = 1;
  change_fields(d, declaration.facts);

  // A refusal passes the model's code on its way out as a status; what it says is kept here.
  std::optional<Diagnostic> refusal;
  mortise_builder builder{declaration, {}, {nullptr, d.model.by->id()}};
  builder.provide = [&](mortise_layer& layer, const mortise_layer_spec& spec) {
    try {
      d.layers->declare(builder, layer, spec);
    } catch (const Failure& f) {
      if (!refusal) refusal = f.diagnostic;
      throw PluginError(MORTISE_E_CONFIG, f.diagnostic.message);
    }
  };
  try {
    d.model.call(&mortise_model::declare, "declare", &builder);
  } catch (const PluginError&) {
    if (refusal) throw Failure(*refusal);
    throw;
  }
  if (refusal) throw Failure(*refusal);  // a model that goes on without a layer that it was refused
  check_tokenizer(d, vocabulary);
  if (declaration.segments.empty() || declaration.params.empty())
    throw PluginError(MORTISE_E_PLUGIN, d.model.by->id() + " declared no segments or no parameters", d.model.by->id());
}

// What the weights of the run do not have is tagged `new`, and is so for as long as the run goes on.
void begin_parameters(Declared& d, const DeclareRequest& request) {
  Declaration& declaration = d.edge->declaration();
  d.anew = request.anew;
  if (!request.weights.empty()) {
    const Value& lacks = d.key("model", "new");
    d.weights = std::make_unique<Weights>(request.weights, declaration, *d.model.by->member->info,
                                          lacks.is_set() ? lacks.as_texts() : std::vector<std::string>());
    for (const std::string& name : d.weights->anew())
      if (!declaration.find(name)->has_tag("new")) d.anew.push_back(name);
  }
  if (request.world.size > 1 && request.open_device) {  // else the ranks do not meet: it is a plan
    std::istringstream names(said_by_first(d, "new parameters", join(d.anew, "\n")));
    d.anew.clear();
    for (std::string name; std::getline(names, name);) d.anew.push_back(name);
  }
  for (const std::string& name : d.anew)
    if (mortise_param* p = declaration.find(name)) p->add_tag("new");
}

bool writes_parameters(const PluginInfo& info) {
  return std::ranges::any_of(info.listens,
                             [](const ListenInfo& l) { return l.point == "params.declared" && !l.writes.empty(); });
}

// A part that one plugin added and another one froze stays as it begins, and nobody else would say so.
void warn_of_frozen(Declared& d, const std::string& by, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const std::string more = names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "";
  d.warnings.push_back(as_warning(
      mistake("new_and_frozen", by + " freezes " + names[0] + more + ", new in this run: it stays as it begins", {},
              "[parameters.NAME] freeze = false, with a `where` that takes it; or leave one of the two plugins out")));
}

// params.declared: each listener on the parameters that its `where` takes; those that write, or those that do not.
void tell_of_parameters(Declared& d, bool who_write) {
  Declaration& declaration = d.edge->declaration();
  const auto elements = declaration.param_elements();
  d.edge->declaring_parameters = true;
  for (const auto& l : d.plan->at[kParamsDeclared].listeners) {
    if (writes_parameters(*d.plan->members[static_cast<size_t>(l.member)].info) != who_write) continue;
    Instance& by = d.instances->start(l.member);
    const auto listen = d.instances->attachment(l.member, "params.declared", "listen").listen;
    std::vector<std::string> frozen;
    for (const size_t i : select(l, elements, MORTISE_TRAIN)) {
      mortise_event e{};
      e.struct_size = sizeof e;
      e.point = kParamsDeclared;
      e.param = &declaration.params[i];
      const bool may_learn = declaration.params[i].info.trainable != 0 && declaration.params[i].has_tag("new");
      clear_error();
      if (const mortise_status s = call_plugin({by.id(), "params.declared", declaration.params[i].name}, listen,
                                               by.self, static_cast<const mortise_event*>(&e)))
        throw_from(by, s, "params.declared");
      if (may_learn && declaration.params[i].info.trainable == 0) frozen.push_back(declaration.params[i].name);
    }
    if (who_write) warn_of_frozen(d, by.id(), frozen);
  }
  d.edge->declaring_parameters = false;
}

void check_store(const Declared& d) {
  for (const mortise_param& p : d.edge->declaration().params)
    if (p.is_stored() && !d.store)
      throw PluginError(MORTISE_E_PLUGIN, "states of " + p.name + " are to lie in a store, and nothing provides one");
}

void check_trainable(const Declared& d) {
  const auto& params = d.edge->declaration().params;
  if (std::ranges::any_of(params, [](const mortise_param& p) { return p.info.trainable != 0; })) return;
  d.layers->check();  // somebody freezes all but what it was to add, and its `where` takes nothing
  Diagnostic refused = mistake("nothing_to_train",
                               "all " + std::to_string(params.size()) + " parameters of " + d.model.by->id() +
                                   " are frozen: nothing is left to train",
                               {}, "freeze less: give [parameters.NAME] another `where`, or leave out `freeze`");
  for (const ParameterRule& rule : d.manifest->rules)
    if (const auto freeze = rule.values.find("freeze"); freeze != rule.values.end() && freeze->second.as_bool())
      refused.positions.push_back(freeze->second.origin);
  throw Failure(refused);
}

// A step ends where an epoch does: it has no more samples than there are. Whoever asked for more is told.
void limit_to_data(Declared& d, int64_t micros, int64_t per_epoch) {
  const mortise_clock& clock = d.edge->services.clock;
  const double together = static_cast<double>(clock.micro_batch_size) * static_cast<double>(clock.ranks);
  const int64_t train = d.samples->count("train");
  d.lengths.samples_per_epoch = static_cast<double>(train);
  if (d.key("data", "drop_last").as_bool()) d.lengths.samples_per_epoch = static_cast<double>(per_epoch) * together;
  const double asked = d.lengths.samples_per_step, most = d.lengths.samples_per_epoch;
  if (most <= 0 || asked <= most) return;
  d.lengths.samples_per_step = most;
  const auto& who = d.plan->at[kStepWindow].listeners;
  const Position at = micros > 1 && !who.empty() ? who.back().origin : d.key("data", "micro_batch_size").origin;
  if (!at) return;  // nobody asked: so many are the default
  d.warnings.push_back(as_warning(mistake("batch_exceeds_data",
                                          "a step has " + with_commas(static_cast<int64_t>(most)) +
                                              " samples, not the " + with_commas(static_cast<int64_t>(asked)) +
                                              " that the manifest asks for: that is all the data",
                                          at, "a smaller batch, or more data")));
}

// Who only measures has no step that a batch would have to be split for.
void measure_lengths(Declared& d, bool trains) {
  mortise_clock& clock = d.edge->services.clock;
  const int64_t micros = trains ? d.window() : 1, per_epoch = d.samples->micros_per_epoch("train");
  const int64_t steps_per_epoch = per_epoch / micros + (per_epoch % micros != 0);
  // In floating point: a manifest may ask for more than 64 bits count, which is refused below.
  d.lengths.steps_per_epoch = static_cast<double>(steps_per_epoch);
  d.lengths.samples_per_step =
      static_cast<double>(micros) * static_cast<double>(clock.micro_batch_size) * static_cast<double>(clock.ranks);
  if (d.lengths.samples_per_step * static_cast<double>(std::max<int64_t>(clock.sequence_length, 1)) > 0x1p53)
    throw Failure(mistake("out_of_range",
                          "a step of " + std::to_string(micros) + " micro-batches has more than 2^53 tokens",
                          d.key("data", "micro_batch_size").origin));
  limit_to_data(d, micros, per_epoch);
  d.lengths.tokens_per_step = d.lengths.samples_per_step * static_cast<double>(clock.sequence_length);
  d.lengths.run = d.lengths.steps(d.key("run", "length"), "run.length");
  clock.micros = static_cast<int32_t>(micros);
  clock.length = d.lengths.run;
}

void order_samples(Declared& d) {
  d.order = d.instances->object<mortise_order>(kDataOrder);
  if (d.order) d.samples->order_by(d.data, d.order, static_cast<int64_t>(d.lengths.samples_per_step));
}

void fill(Declared& d, const DeclareRequest& request) {
  Instances& plugins = *d.instances;
  // Before LibTorch is touched for anything else: a device may have to load first.
  d.device = plugins.object<mortise_device>(kDevice);
  const int32_t index = device_index(*d.manifest, *d.plan, request.world);
  if (request.open_device || d.device.object->kind == MORTISE_CPU) open_device(d.device, index, plugins, *d.edge);
  const bool repeats = request.open_device && d.plan->repeats;
  d.edge->device_opened(d.device.object->kind, index, repeats);
  if (request.open_device) d.comm = plugins.object<mortise_comm>(kComm);  // a plan meets nobody
  join_ranks(d, request);
  if (!d.plan->at[kTokenizer].providers.empty())
    d.edge->services.tokenizer = plugins.object<mortise_tokenizer>(kTokenizer);
  // A native plugin stands on LibTorch, and may on the device's half, which is there once the device is open.
  const bool is_open = request.open_device;
  for (size_t m = 0; m < d.plan->members.size(); ++m)
    if (const Member& member = d.plan->members[m]; member.table && (is_open || member.info->tier != "native"))
      plugins.start(static_cast<int>(m));
  d.data = plugins.object<mortise_data>(kData);
  d.replicas = plugins.object<mortise_replicas>(kReplicas);
  d.store = plugins.object<mortise_state_store>(kStatesStore);
  d.schedule = plugins.object<mortise_schedule>(kSchedule);
  d.model = plugins.object<mortise_model>(kModel);
  d.format = plugins.object<mortise_format>(kCheckpointFormat);
  if (d.format) text_of(d.format.object->extension, d.format.by->id());
  d.sampler = plugins.object<mortise_sampler>(kSample);
  open_data(d, request);
  d.layers = std::make_unique<LayerProviders>(*d.edge, plugins, d.device.object->kind);
  declare_model(d);
  // The manifest has the last word, and who only reads sees what counts.
  apply_tag_rules(d.edge->declaration(), *d.manifest);
  begin_parameters(d, request);
  check_named_parameters(d.edge->declaration(), *d.plan);
  tell_of_parameters(d, /*who_write=*/true);
  apply_parameter_rules(d.edge->declaration(), *d.manifest, *d.plan);
  tell_of_parameters(d, /*who_write=*/false);
  for (KeptTensors& kept : d.edge->services.kept)
    std::erase_if(kept.beside, [](const ParamStates& p) { return p.param->info.trainable == 0; });
  if (request.train_samples) {  // who only evaluates may do so in a dtype that no optimizer of the run takes
    check_trainable(d);
    check_store(d);
    const Mesh& mesh = d.edge->services.mesh;
    count_replicas(d.edge->declaration(), mesh);
    d.optimizers = declare_optimizers(plugins, d.edge->declaration(), *d.manifest, d.replicas, mesh, &d.groups);
    for (KeptTensors& kept : d.edge->services.kept) shard_kept(kept.beside, kept.host->id);
    proof_of(d);
  }
  d.layers->check();
  d.listeners = std::make_unique<Listeners>(plugins, request.world);
  measure_lengths(d, request.train_samples);
  if (request.train_samples) order_samples(d);
}

}  // namespace

std::map<std::string, bool> Declared::measured() const {
  std::map<std::string, bool> all = {{"eval.loss", false}};
  for (const Member& member : plan->members)
    for (const auto& [name, larger] : measured_by(*member.info)) all[name] = larger;
  return all;
}

int32_t Declared::window() const {
  edge->services.window = 1;
  listeners->filter(edge->services, Filter::kWindow, kStepWindow);
  return edge->services.window;
}

std::string said_by_first(const Declared& d, std::string_view key, const std::string& own) {
  return said_by(d.edge->services, 0, key, own);
}

Diagnostic diagnostic_of(const FormatError& error) { return trouble(kExitData, error.code, error.message, error.path); }

bool saves_in_background(const Declared& d) {
  const Value& stated = d.key("checkpoint", "background");
  return d.format && (stated.is_set() ? stated.as_bool() : d.device.object->kind == MORTISE_CUDA);
}

[[noreturn]] static void no_memory() {
  throw Failure(trouble(kExitUnavailable, "out_of_memory", "not enough memory to declare the run", "",
                        "fewer samples, or a smaller model"));
}

Declared declare(const DeclareRequest& request, std::unique_ptr<Edge> edge) {
  Declared d;
  d.manifest = request.manifest;
  d.plan = request.plan;
  d.edge = std::move(edge);
  if (const Value& limit = d.key("run", "call_timeout"); limit.is_set())
    d.watchdog = std::make_unique<CallWatchdog>(std::chrono::duration<double>(limit.as_amount().number));
  d.instances = std::make_unique<Instances>(*d.edge, *d.plan, request.probe);
  d.instances->probe_ahead();
  try {
    fill(d, request);
  } catch (const PluginError& e) {
    if (!d.edge->needs_tensors.empty()) throw NeedsTensors{d.edge->needs_tensors};
    throw Failure(d.instances->diagnose(e));
  } catch (const FormatError& e) {
    throw Failure(diagnostic_of(e));
  } catch (const std::bad_alloc&) {
    no_memory();
  } catch (const std::length_error&) {  // more than any memory holds
    no_memory();
  }
  return d;
}

}  // namespace mortise
