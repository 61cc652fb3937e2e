#include "core/declare/summary.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/declare/declared.hpp"
#include "core/declare/join.hpp"
#include "core/declare/work.hpp"
#include "core/plan/compute_dtype.hpp"
#include "core/plan/facts.hpp"
#include "mortise/dtype.h"

namespace mortise {
namespace {

std::string parameters_text(int64_t n) {
  return n < 100'000 ? with_commas(n) + " parameters"
                     : fmt::format("{:.1f} M parameters", static_cast<double>(n) / 1e6);
}

std::string counted(int64_t n, const char* one, const char* many) {
  return with_commas(n) + " " + (n == 1 ? one : many);
}

std::string batch_text(const mortise_clock& c, const Summary& s) {
  const int64_t asked = int64_t{c.micro_batch_size} * c.micros * c.ranks;
  const std::string made_of = s.samples_per_step < asked
                                  ? "all the data, of " + with_commas(asked) + " asked for"
                                  : fmt::format("{} a device × {} accumulated × {}", c.micro_batch_size, c.micros,
                                                counted(c.ranks, "rank", "ranks"));
  return fmt::format("{}{} ({}) · {}", counted(s.samples_per_step, "sample", "samples"),
                     c.sequence_length > 0 ? " × " + with_commas(c.sequence_length) + " tokens" : "", made_of,
                     counted(s.steps, "step", "steps"));
}

// "146 tensors, lr 1.0e-03, weight decay 0.01: FAMILY.NAME"; "" for a group without a tensor.
std::string group_text(const Declared& d, size_t index) {
  int64_t tensors = 0;
  for (const auto& p : d.edge->declaration().params)
    tensors += p.info.trainable && p.info.group == static_cast<int32_t>(index);
  if (tensors == 0) return "";
  const Group& g = d.groups[index];
  const Instance& by = *d.optimizers[static_cast<size_t>(g.optimizer)].by;
  const Value* cut = fact_of(*by.member->info, "optimizer", "cut");
  return fmt::format("{}, lr {:.1e}, weight decay {:g}: {}, cut by {}", counted(tensors, "tensor", "tensors"), g.lr,
                     g.weight_decay, by.id(), cut ? cut->as_text() : "element");
}

// A type, or where they differ how many of each: "fp64 × 26, fp8 × 12".
std::string dtypes_text(const std::map<uint32_t, int64_t>& counts) {
  std::vector<std::string> texts;
  for (const auto& [dtype, n] : counts)
    texts.push_back(mortise_dtype_of(dtype)->name + (counts.size() > 1 ? " × " + with_commas(n) : ""));
  return texts.empty() ? "none" : join(texts, ", ");
}

// What the first step is compared with.
std::string dtypes_text(const Declared& d) {
  std::map<uint32_t, int64_t> values, masters, gradients, states;
  for (const mortise_param& p : d.edge->declaration().params) {
    ++values[p.info.value_dtype];
    ++masters[p.info.master_dtype];
    if (p.info.trainable) ++gradients[p.info.grad_dtype];
  }
  for (const auto& o : d.optimizers)
    for (const ParamStates& beside : o.states)
      for (const StateSpec& s : beside.states) ++states[s.dtype];
  const std::string compute = planned_compute_dtype(*d.plan, MORTISE_TRAIN);
  return "values " + dtypes_text(values) + " · masters " + dtypes_text(masters) + " · gradients " +
         dtypes_text(gradients) + " · states " + dtypes_text(states) + " · computes " +
         (compute.empty() ? "as stored" : "in " + compute);
}

// "h.0.attn.c_attn.weight  [out 2304, in 768]  matrix  frozen"
std::string parameter_text(const mortise_param& p) {
  std::vector<std::string> sizes;
  const std::vector<int64_t>& whole = p.whole_sizes();
  for (size_t i = 0; i < whole.size(); ++i)
    sizes.push_back((i < p.dims.size() ? p.dims[i] + " " : "") + std::to_string(whole[i]));
  std::string text = fmt::format("{}  [{}]  {}", p.name, fmt::join(sizes, ", "), p.role);
  if (!p.info.trainable) text += "  frozen";
  if (!p.other_names.empty()) text += "  also " + join(p.other_names, ", ");
  return text;
}

// Weights from elsewhere have the ids that they have; some are there to make a round number. Where most of them are
// none of the data's, they were trained with another tokenizer.
void say_of_vocabulary(const Declared& d, Summary& s) {
  const auto known = d.edge->declaration().facts.find("vocabulary");
  const Member& model = *d.model.by->member;
  const Value* stated = value_of_fact(model, "model", "vocabulary");
  if (!stated || known == d.edge->declaration().facts.end() || stated->as_int() <= 2 * known->second) return;
  const std::string of =
      fmt::format("of the model's {} ids the data has {}", with_commas(stated->as_int()), with_commas(known->second));
  const Value& weights = d.key("model", "weights");
  if (!weights.is_set())
    s.advice.push_back(fmt::format("{}, the others are never trained: [{}] {} = {}", of, d.model.by->id(),
                                   fact_of(*model.info, "model", "vocabulary")->as_text(), known->second));
  else if (d.weights)
    s.warnings.push_back(
        as_warning(mistake("other_vocabulary", of + ": an id need not mean what it meant to the weights",
                           weights.origin, "data of the tokenizer that the weights were trained with")));
}

// What libraries of the device keep, and what optimizers do beside states.
int64_t workspaces_bytes(const Declared& d) {
  int64_t all = workspaces_of(*d.plan);
  return diagnosed(*d.instances, [&] {
    for (const auto& o : d.optimizers)
      for (const ParamStates& beside : o.states) {
        if (!o.object.has(&mortise_optimizer::workspace)) break;
        int64_t bytes = 0;
        o.object.call(&mortise_optimizer::workspace, "workspace of " + beside.param->name, &beside.param->info,
                      beside.param->is_updated_on_host() ? uint32_t{MORTISE_CPU} : d.device.object->kind, &bytes);
        all += bytes;
      }
    return all;
  });
}

// What is whole for a while, of parameters of which this rank has a part; and masters of the host's that ranks exchange
// on the device, where that is not done in the value.
int64_t transient_bytes(const Declared& d) {
  int64_t bytes = 0;
  if (d.edge->services.world.size == 1 || d.optimizers.empty()) return bytes;
  if (d.replicas.has(&mortise_replicas::transient))
    diagnosed(*d.instances, [&] { d.replicas.call(&mortise_replicas::transient, "transient", &bytes); });
  if (d.replicas.has(&mortise_replicas::gather))
    for (const mortise_param& p : d.edge->declaration().params)
      if (p.is_updated_on_host() && !p.is_sharded() && p.info.value_dtype != p.info.master_dtype)
        bytes += p.info.numel * mortise_dtype_of(p.info.master_dtype)->bytes;
  return bytes;
}

// As in a ring: of a sum over n ranks each sends 2 (n - 1) / n of it; half of that where each keeps its part, or one
// rank all, and of what each has a part of, or one rank all, for the others. Sharded gradients are sent by micro-batch,
// whole where `comm` has no other way; values that come and go twice in it.
int64_t sent_bytes(const Declared& d, int64_t micros) {
  const Member& comm = d.plan->members[static_cast<size_t>(d.plan->at[kComm].providers.back().member)];
  const int64_t scatters = fact_of(*comm.info, "comm", "reduce_scatter") ? 2 : 1;
  int64_t all = 0;
  for (const mortise_param& p : d.edge->declaration().params) {
    int64_t bytes = 0;
    const auto of = [&](uint32_t dtype) { return p.info.numel * mortise_dtype_of(dtype)->bytes; };
    const int64_t gradient = p.info.trainable ? of(p.info.grad_dtype) : 0;
    if (!p.is_sharded()) {
      bytes += (d.replicas.has(&mortise_replicas::norm) ? 1 : 2) * gradient;
      if (p.info.trainable && d.replicas.has(&mortise_replicas::gather)) bytes += of(p.info.master_dtype);
    } else {
      const int64_t values = p.shards.comes_and_goes ? 2 * micros : 1;
      bytes += micros * scatters * gradient + values * of(p.info.value_dtype);
    }
    all += bytes * (p.info.replicas - 1) / p.info.replicas;
  }
  return all;
}

// "gradients and masters of 8 of 14 tensors lie in parts on the ranks, of the others states alone"
std::string parts_text(const Declared& d) {
  const auto& params = d.edge->declaration().params;
  const auto has_states = [](const mortise_param& p) { return p.info.trainable && p.info.replicas > 1; };
  const auto n = std::ranges::count_if(params, &mortise_param::is_sharded);
  const auto all = std::ranges::count_if(params, [&](const auto& p) { return p.is_sharded() || has_states(p); });
  const bool values = std::ranges::any_of(params, [](const mortise_param& p) { return p.shards.comes_and_goes; });
  const bool masters = std::ranges::any_of(params, [](const mortise_param& p) {  // else they are the values
    return p.is_sharded() && (p.is_updated_on_host() || p.info.value_dtype != p.info.master_dtype);
  });
  if (d.edge->services.world.size == 1 || !d.replicas.has(&mortise_replicas::shard)) return "";
  if (n == 0) return "no tensor lies in parts on the ranks, but for its states";
  return fmt::format("{} of {} of {} lie in parts on the ranks{}",
                     values    ? "gradients, masters and values"
                     : masters ? "gradients and masters"
                               : "gradients",
                     with_commas(n), counted(all, "tensor", "tensors"), n < all ? ", of the others states alone" : "");
}

// "AXIS: along 2 ranks (FAMILY.NAME.KEY) lie 24 of 61 tensors, which no other rank has"
std::vector<std::string> axes_texts(const Declared& d) {
  const Mesh& mesh = d.edge->services.mesh;
  const auto& params = d.edge->declaration().params;
  std::vector<std::string> texts;
  for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
    const Axis& a = mesh.axes()[static_cast<size_t>(axis)];
    if (a.size == 1) continue;
    const auto parts = std::ranges::count(params, axis, [](const mortise_param& p) { return p.placement.axis; });
    const auto sharers = std::ssize(mesh.sharers(axis));
    texts.push_back(
        fmt::format("{}: along {} ranks ({}){} lie {} of {}, {}", a.name, a.size, a.by,
                    a.shares_data ? ", which see the same samples," : "", with_commas(parts),
                    counted(std::ssize(params), "tensor", "tensors"),
                    sharers == 1 ? "which no other rank has" : fmt::format("each the same on {} ranks", sharers)));
  }
  return texts;
}

double flop_per_s_at_most(const Declared& d) {
  double of_one = 0;
  const std::string factors = factors_of_products(*d.plan, d.edge->declaration());
  if (d.device.has(&mortise_device::products))
    diagnosed(*d.instances, [&] { d.device.call(&mortise_device::products, "products", str(factors), &of_one); });
  return of_one > 0 ? of_one * d.edge->services.world.size : 0;
}

template <class Object, class Describe>
std::string described(const Declared& d, const Provided<Object>& provided, Describe describe) {
  return diagnosed(*d.instances, [&] {
    mortise_str about{};
    provided.call(describe, "describe", &about);
    return std::string(text_of(about, provided.by->id()));
  });
}

// States that are elsewhere than in memory; returns what an update takes to bring them, of one optimizer at a time.
int64_t count_stored(const Declared& d, Summary& s) {
  int64_t buffers = 0, largest_piece = 0;
  for (const auto& o : d.optimizers) {
    const Stored stored = stored_of(o.states);
    s.stored_bytes += stored.bytes;
    largest_piece = std::max(largest_piece, stored.largest_piece);
  }
  if (s.stored_bytes == 0) return 0;
  s.stored_by = d.store.by->id();
  s.details[s.stored_by] = described(d, d.store, &mortise_state_store::describe);
  diagnosed(*d.instances, [&] { d.store.call(&mortise_state_store::memory, "memory", largest_piece, &buffers); });
  return buffers;
}

}  // namespace

Summary summary_of(const Declared& d, const std::string& dir) {
  const Declaration& declaration = d.edge->declaration();
  const mortise_clock& c = d.edge->services.clock;
  Summary s;
  s.warnings = d.warnings;
  say_of_vocabulary(d, s);
  s.parameters = declaration.count();
  if (d.weights) s.weights = d.weights->summary();
  s.steps = d.lengths.run;
  s.steps_per_epoch = static_cast<int64_t>(d.lengths.steps_per_epoch);
  s.samples_per_epoch = static_cast<int64_t>(d.lengths.samples_per_epoch);
  s.samples_per_step = static_cast<int64_t>(d.lengths.samples_per_step);
  s.tokens_per_step = static_cast<int64_t>(d.lengths.tokens_per_step);
  s.micros = c.micros;
  s.ranks = d.edge->services.world.size;
  s.parts = parts_text(d);
  s.axes = axes_texts(d);
  if (!d.optimizers.empty()) s.proof = proof_of(d);
  s.run = d.manifest->name + (dir.empty() ? "" : " -> " + dir);
  s.model = d.model.by->id() + " " + parameters_text(s.parameters);
  s.data =
      fmt::format("{} {} · {} to train, {} to validate", d.data.by->id(), d.samples->about("train"),
                  counted(d.samples->count("train"), "sample", "samples"), with_commas(d.samples->count("validation")));
  const std::string device_text = described(d, d.device, &mortise_device::describe);
  s.tokens_per_sample = d.sequence_length;
  s.flop_per_token = flop_per_token(declaration, d.sequence_length);
  s.flop_per_s_at_most = flop_per_s_at_most(d);
  const Claim& device = d.plan->at[kDevice].providers.back();
  s.device = d.device.by->id() + ", " + escape_control(device_text);
  if (device.stands_in) s.device += "        " + device.why;
  s.batch = batch_text(c, s);
  s.details[d.device.by->id()] = device_text;
  s.details[d.model.by->id()] = parameters_text(s.parameters) + ", " +
                                counted(static_cast<int64_t>(declaration.segments.size()), "segment", "segments");
  s.details[d.data.by->id()] = d.samples->about("train");
  if (d.order) s.details[d.order.by->id()] = described(d, d.order, &mortise_order::describe);
  for (const auto& [id, ids] : d.layers->chosen()) s.details[id] = "-> " + join(ids, ", ");

  for (const auto& [id, ids] : d.layers->inside()) s.details[id] = "around " + join(ids, ", ");
  for (const auto& [id, places] : d.layers->apart()) {
    std::string& detail = s.details[id];
    detail += (detail.empty() ? "kept apart at " : "; kept apart at ") + join(places, "; ");
  }
  s.dtypes = dtypes_text(d);
  const mortise_dtype_row* widest = mortise_dtype_of(MORTISE_NO_DTYPE);
  for (const mortise_param& p : declaration.params)
    if (const mortise_dtype_row* own = mortise_dtype_of(p.info.value_dtype); own->bytes > widest->bytes) widest = own;
  s.widest = widest->name;

  const Memory m = weights_and_gradients(declaration);
  s.weights_bytes = m.weights;
  s.gradients_bytes = m.gradients;
  s.casts_bytes = m.casts;
  s.sent_bytes = sent_bytes(d, s.micros);
  s.sends_values =
      d.replicas.has(&mortise_replicas::gather) || std::ranges::any_of(declaration.params, &mortise_param::is_sharded);
  s.host_bytes = m.host;
  const auto count = [&](const ParamStates& beside) {
    (beside.param->is_updated_on_host() ? s.host_bytes : s.states_bytes) += bytes_of({beside});
  };
  for (const auto& o : d.optimizers)
    for (const ParamStates& beside : o.states)
      if (!beside.param->is_stored()) count(beside);
  for (const KeptTensors& kept : d.edge->services.kept) {
    s.details[d.instances->of(*kept.host).id()] =
        "keeps " + byte_size(bytes_of(kept.beside)) + " beside the parameters";
    for (const ParamStates& beside : kept.beside) count(beside);
  }
  s.workspaces_bytes = workspaces_bytes(d);
  s.transient_bytes = transient_bytes(d);
  const int64_t buffers = count_stored(d, s);
  if (saves_in_background(d)) s.copy_bytes = s.weights_bytes + s.states_bytes + s.host_bytes + s.stored_bytes;
  s.host_bytes += buffers;
  for (size_t g = 0; g < d.groups.size(); ++g)
    if (const std::string text = group_text(d, g); !text.empty()) s.groups.push_back(text);
  for (const auto& p : declaration.params) s.parameter_lines.push_back(parameter_text(p));
  return s;
}

}  // namespace mortise
