#include "core/loop/build.hpp"

#include <ATen/core/grad_mode.h>

#include "core/base/text.hpp"
#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/loop/saver.hpp"
#include "core/loop/state.hpp"
#include "core/loop/weights.hpp"

namespace mortise {
namespace {

const Value& key(const Manifest& m, const char* table, const char* name) { return m.get(table, name); }
double float_or(const Value& v, double otherwise) { return v.is_set() ? v.as_float() : otherwise; }

// A family's number for one provider: what the manifest says in the provider's own table, in the family's, or the
// plugin's default.
double family_number(const Manifest& m, const Member& member, const char* family, const char* name, double otherwise) {
  if (member.table)
    if (const auto own = member.table->values.find(name); own != member.table->values.end() && own->second.is_set())
      return own->second.as_float();
  if (const Value& v = m.get(family, name); v.is_set()) return v.as_float();
  const auto& defaults = member.info->schema.family_defaults;
  const auto d = defaults.find(name);
  return d == defaults.end() ? otherwise : float_or(d->second, otherwise);
}

std::string parameters_text(int64_t n) {
  return (n < 100'000 ? with_commas(n) : formatted("%.1f M", static_cast<double>(n) / 1e6)) + " parameters";
}

// plugin.toml may say which of its keys bounds the length of a sequence: [model] context = "KEY".
int64_t context_of(const Member& model) {
  const Value* named = fact_of(*model.info, "model", "context");
  if (!named || !model.table) return 0;
  const auto v = model.table->values.find(named->as_text());
  return v == model.table->values.end() || !v->second.is_set() ? 0 : v->second.as_int();
}

}  // namespace

Run::Parts::Parts(RunRequest r)
    : request(std::move(r)), manifest(*request.manifest), plan(*request.plan),
      host(plan.points, static_cast<uint64_t>(key(manifest, "run", "seed").as_int())),
      plugins(host, plan, request.probe), chains(host, plan, plugins) {
  if (const Value& limit = key(manifest, "run", "call_timeout"); limit.is_set())
    watchdog.emplace(std::chrono::duration<double>(limit.as_amount().number));
}

void Run::Parts::build() {
  open_device();
  register_services(host, services);
  comm = plugins.object<mortise_comm>(kComm);
  if (!plan.at[kTokenizer].providers.empty()) {
    services.tokenizer = plugins.object<mortise_tokenizer>(kTokenizer);
    register_services(host, services);
  }
  for (size_t m = 0; m < plan.members.size(); ++m)
    if (plan.members[m].table) plugins.start(static_cast<int>(m));
  open_data();
  declare();
  apply_filters();
  apply_rules();
  make_optimizers();
  make_steps();
  if (!request.checkpoint.empty()) restore(*this, request.checkpoint);
  summarise();
}

// Before LibTorch is touched for anything else: a device may have to load first.
void Run::Parts::open_device() {
  device = plugins.object<mortise_device>(kDevice);
  device.call(&mortise_device::open, "open", int32_t{0});
  host.set_device(device.object->kind == MORTISE_CUDA ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU));
  at::GradMode::set_enabled(false);  // only a micro-batch's forward records
}

void Run::Parts::open_data() {
  data = plugins.object<mortise_data>(kData);
  replicas = plugins.object<mortise_replicas>(kReplicas);
  schedule = plugins.object<mortise_schedule>(kSchedule);
  if (!plan.at[kCheckpointFormat].providers.empty()) {
    format = plugins.object<mortise_format>(kCheckpointFormat);
    text_of(format.object->extension, format.by->id());
  }
  if (!plan.at[kSample].providers.empty()) sampler = plugins.object<mortise_sampler>(kSample);
  const auto& claims = plan.at[kModel].providers;
  const Member& model_member = plan.members[static_cast<size_t>(claims.back().member)];
  const int64_t context = context_of(model_member);
  const Value& stated = key(manifest, "data", "sequence_length");
  const int64_t length = stated.is_set() ? stated.as_int() : context;
  if (stated.is_set() && context > 0 && length > context)
    throw Failure(mistake("sequence_too_long",
                          "data.sequence_length is " + stated.text() + ", " + model_member.info->schema.id +
                              " takes at most " + std::to_string(context),
                          stated.origin, "sequence_length = " + std::to_string(context)));
  mortise_data_request ask{};
  ask.struct_size = sizeof ask;
  ask.sequence_length = length;
  ask.seed = host.seed();
  data.call(&mortise_data::open, "open", static_cast<const mortise_data_request*>(&ask));

  FeedOptions o;
  o.train = request.purpose != Purpose::kUse;
  o.split = request.split;
  o.micro_batch_size = key(manifest, "data", "micro_batch_size").as_int();
  const Value& eval_size = key(manifest, "eval", "micro_batch_size");
  o.eval_micro_batch_size = eval_size.is_set() ? eval_size.as_int() : o.micro_batch_size;
  o.eval_samples = key(manifest, "eval", "samples").as_int();
  o.sequence_length = length;
  o.pad_to_multiple = key(manifest, "data", "pad_to_multiple").as_int();
  o.shuffle = key(manifest, "data", "shuffle").as_bool();
  o.drop_last = key(manifest, "data", "drop_last").as_bool();
  o.truncate = key(manifest, "data", "truncate").as_bool();
  o.validation = key(manifest, "data", "validation").as_float();
  o.seed = host.seed();
  comm.call(&mortise_comm::world, "world", static_cast<int32_t*>(&o.rank), static_cast<int32_t*>(&o.ranks));
  if (o.ranks < 1 || o.rank < 0 || o.rank >= o.ranks)
    throw PluginError(
        MORTISE_E_PLUGIN,
        comm.by->id() + " says that this is rank " + std::to_string(o.rank) + " of " + std::to_string(o.ranks),
        comm.by->id());
  feed = std::make_unique<Feed>(data, o);

  mortise_clock& clock = services.clock;
  clock.struct_size = sizeof clock;
  clock.micros = 1;
  clock.ranks = o.ranks;
  clock.micro_batch_size = static_cast<int32_t>(o.micro_batch_size);
  clock.sequence_length = length;
}

void Run::Parts::declare() {
  Declaration& d = host.declaration();
  int64_t vocabulary = 0;
  data.call(&mortise_data::vocabulary, "vocabulary", &vocabulary);
  if (vocabulary == 0 && services.tokenizer) services.tokenizer.call(&mortise_tokenizer::size, "size", &vocabulary);
  if (vocabulary > 0) d.facts["vocabulary"] = vocabulary;
  d.facts["sequence_length"] = services.clock.sequence_length;

  model = plugins.object<mortise_model>(kModel);
  // A refusal passes the model's code on its way out as a status; what it says is kept here.
  std::optional<Diagnostic> refusal;
  mortise_builder builder{d, [&](mortise_layer& layer, const mortise_layer_spec& spec) {
                            try {
                              chains.declare_layer(builder, layer, spec);
                            } catch (const Failure& f) {
                              if (!refusal) refusal = f.diagnostic;
                              throw PluginError(MORTISE_E_CONFIG, f.diagnostic.message);
                            }
                          }};
  try {
    model.call(&mortise_model::declare, "declare", &builder);
  } catch (const PluginError&) {
    if (refusal) throw Failure(*refusal);
    throw;
  }
  if (d.segments.empty() || d.params.empty())
    throw PluginError(MORTISE_E_PLUGIN, model.by->id() + " declared no segments or no parameters");
  passes = std::make_unique<Passes>(host, chains, feed.get());
}

void Run::Parts::apply_filters() {
  const auto elements = host.declaration().param_elements();
  for (const auto& l : plan.at[kParamsDeclared].listeners) {
    Instance& by = plugins.start(l.member);
    const auto listen = plugins.attachment(l.member, "params.declared", "listen").listen;
    for (const size_t i : select(l, elements, MORTISE_TRAIN)) {
      mortise_event e{};
      e.struct_size = sizeof e;
      e.point = kParamsDeclared;
      e.param = &host.declaration().params[i];
      if (const mortise_status s = call_plugin({by.id(), "params.declared", host.declaration().params[i].name}, listen,
                                               by.self, static_cast<const mortise_event*>(&e)))
        throw_from(by, s, "params.declared");
    }
  }
}

void Run::Parts::apply_rules() { apply_parameter_rules(host.declaration(), manifest, plan); }

void Run::Parts::make_optimizers() {
  Declaration& d = host.declaration();
  Report report;
  std::vector<Element> trainable;
  std::vector<mortise_param*> params;
  const auto all = d.param_elements();
  for (auto& p : d.params) {
    if (!p.info.trainable) continue;
    trainable.push_back(all[p.index]);
    params.push_back(&p);
  }
  const auto& claims = plan.at[kOptimizer].providers;
  const auto provider = assign(plan.at[kOptimizer], plan, trainable, MORTISE_TRAIN, "parameter", "optimizer", report);
  for (const auto& found : report.all())
    if (found.level == Level::kError) throw Failure(found);
  std::vector<double> lr, decay;
  for (size_t c = 0; c < claims.size(); ++c) {
    const Member& member = plan.members[static_cast<size_t>(claims[c].member)];
    lr.push_back(family_number(manifest, member, "optimizer", "lr", 1e-3));
    decay.push_back(family_number(manifest, member, "optimizer", "weight_decay", 0.0));
    std::vector<mortise_param*> own;
    for (size_t i = 0; i < params.size(); ++i)
      if (provider[i] == static_cast<int>(c)) {
        params[i]->optimizer = static_cast<int>(c);
        own.push_back(params[i]);
      }
    optimizers.emplace_back(plugins, claims[c].member, own);
  }
  groups = make_groups(d, lr, decay);
}

void Run::Parts::make_steps() {
  Declaration& d = host.declaration();
  Parameters::Fill fill;
  std::optional<Weights> weights;
  if (!request.weights.empty()) {
    const Value& lacks = key(manifest, "model", "new");
    weights.emplace(request.weights, d, *model.by->member->info,
                    lacks.is_set() ? lacks.as_texts() : std::vector<std::string>());
    summary.weights = weights->summary();
    fill = [&](const mortise_param& p, at::Tensor& master) { return weights->fill(p, master); };
  }
  if (!request.checkpoint.empty())
    fill = [](const mortise_param&, at::Tensor&) { return true; };  // restored below, whole
  if (request.purpose != Purpose::kPlan) {
    host.parameters().allocate(d, host.device(), host.seed(), request.purpose == Purpose::kTrain, fill);
    if (request.purpose == Purpose::kTrain)
      for (auto& o : optimizers) o.allocate(host);
  }
  ledger = std::make_unique<Ledger>(host.device(), groups, schedule, Horizon{});
  services.ledger = ledger.get();
  step = std::make_unique<Step>(host, chains, *passes, *feed, services, *ledger, optimizers, comm, replicas);
  chains.core(kEval, [this](mortise_call&) {
    if (evaluation) evaluation();
  });
  chains.build(model);
  services.forward = [this](mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n) {
    passes->forward(batch, mode, want, results, n, nullptr);
  };

  const int64_t micros = step->window(), per_epoch = feed->micros_per_epoch("train");
  mortise_clock& clock = services.clock;
  const int64_t steps_per_epoch = (per_epoch + micros - 1) / micros;
  lengths.steps_per_epoch = static_cast<double>(steps_per_epoch);
  lengths.samples_per_step = static_cast<double>(micros * clock.micro_batch_size * clock.ranks);
  lengths.tokens_per_step = lengths.samples_per_step * static_cast<double>(clock.sequence_length);
  lengths.run = lengths.steps(key(manifest, "run", "length"), "run.length");
  clock.micros = static_cast<int32_t>(micros);
  clock.length = lengths.run;
  const Value &warmup = key(manifest, "schedule", "warmup"), &over = key(manifest, "schedule", "over");
  const Horizon horizon{warmup.is_set() ? lengths.steps(warmup, "schedule.warmup") : 0,
                        over.is_set() ? lengths.steps(over, "schedule.over") : lengths.run};
  *ledger = Ledger(host.device(), groups, schedule, horizon);
}

void Run::Parts::summarise() {
  const Declaration& d = host.declaration();
  const mortise_clock& c = services.clock;
  Summary& s = summary;
  s.parameters = d.count();
  s.steps = lengths.run;
  s.steps_per_epoch = static_cast<int64_t>(lengths.steps_per_epoch);
  s.samples_per_step = static_cast<int64_t>(lengths.samples_per_step);
  s.tokens_per_step = static_cast<int64_t>(lengths.tokens_per_step);
  s.micros = c.micros;
  s.ranks = c.ranks;
  s.run = manifest.name + (request.dir.empty() ? "" : " -> " + request.dir);
  s.model = model.by->id() + " " + parameters_text(s.parameters);
  s.data = data.by->id() + " " + feed->about("train") + " · " + with_commas(feed->samples("train")) +
           " samples to train, " + with_commas(feed->samples("validation")) + " to validate";
  mortise_str about{};
  device.call(&mortise_device::describe, "describe", &about);
  const std::string& why = plan.at[kDevice].providers.back().why;
  s.device = device.by->id() + ", " + std::string(text_of(about, device.by->id())) +
             (why.find("cannot run here") != std::string::npos ? "        " + why : "");
  s.batch = with_commas(s.samples_per_step) + " samples × " + with_commas(c.sequence_length) + " tokens (" +
            std::to_string(c.micro_batch_size) + " a device × " + std::to_string(c.micros) + " accumulated × " +
            std::to_string(c.ranks) + (c.ranks == 1 ? " rank)" : " ranks)") + " · " + with_commas(s.steps) + " steps";
  s.details[device.by->id()] = view(about);
  s.details[model.by->id()] = parameters_text(s.parameters) + ", " + std::to_string(d.segments.size()) + " segments";
  s.details[data.by->id()] = feed->about("train");
  for (const auto& [id, text] : chains.chosen()) s.details[id] = text;

  const Memory m = weights_and_gradients(d);
  s.weights_bytes = m.weights;
  s.gradients_bytes = m.gradients;
  s.casts_bytes = m.casts;
  for (const auto& o : optimizers) s.states_bytes += o.state_bytes();
  if (saves_in_background(*this)) s.copy_bytes = s.weights_bytes + s.states_bytes;
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t tensors = 0;
    for (const auto& p : d.params) tensors += p.info.trainable && p.info.group == static_cast<int32_t>(g);
    if (tensors == 0) continue;
    s.groups.push_back(with_commas(tensors) + (tensors == 1 ? " tensor" : " tensors") + ", lr " +
                       formatted("%.1e", groups[g].lr) + ", weight decay " + formatted("%g", groups[g].weight_decay) +
                       ": " + optimizers[static_cast<size_t>(groups[g].optimizer)].id());
  }
  for (const auto& p : d.params) {
    std::vector<std::string> sizes;
    for (size_t i = 0; i < p.sizes.size(); ++i)
      sizes.push_back((i < p.dims.size() ? p.dims[i] + " " : "") + std::to_string(p.sizes[i]));
    s.parameter_lines.push_back(p.name + "  [" + join(sizes, ", ") + "]  " + p.role +
                                (p.info.trainable ? "" : "  frozen") +
                                (p.other_names.empty() ? "" : "  also " + join(p.other_names, ", ")));
  }
}

}  // namespace mortise
