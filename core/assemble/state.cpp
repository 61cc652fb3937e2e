#include "core/assemble/state.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/abi/error.hpp"
#include "core/assemble/format.hpp"
#include "core/base/text.hpp"
#include "core/host/handle.hpp"
#include "core/host/placed.hpp"
#include "core/host/to_host.hpp"
#include "core/plan/facts.hpp"
#include "core/store/files.hpp"
#include "formats/file.hpp"
#include "formats/huggingface/config.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;

constexpr const char *kDataFile = "data.json", *kNewFile = "new.json";
constexpr size_t kMaxData = size_t{64} << 10;

[[noreturn]] void refuse(const std::string& at, const std::string& message) {
  Diagnostic d = trouble(kExitData, "other_state", message, at);
  d.effect = "nothing was restored";
  throw Failure(d);
}

std::string extension(const Declared& d) { return std::string(view(d.format.object->extension)); }
// The states of all ranks together, which the first saves.
const std::string kRankFile = "optimizer/rank-0", kModelFile = "model/model";
std::string kept_file(const PluginHost& plugin) { return "plugins/" + plugin.id + ".rank-0"; }

// ---- what is captured ----

// Entries of files, one after another.
class Capture {
 public:
  explicit Capture(Snapshot& earlier) : earlier_(earlier) {}
  // `is_own`: nobody else writes to it.
  StoredEntry& add(const std::string& file, const std::string& name, const at::Tensor& t, bool is_own = false) {
    std::vector<StoredEntry>& entries = taken_.tensors[file];
    StoredEntry& e = entries.emplace_back();
    e.name = name;
    e.dtype = dtype_of(t.scalar_type());
    e.sizes = t.sizes().vec();
    e.bytes = t.nbytes();
    if (!t.is_cpu()) {
      e.copy = memory_for(earlier_, file, entries.size() - 1, e.bytes);
      e.data = e.copy.get();
      to_host_.copy(t, e.copy.get());
      return e;
    }
    const at::Tensor dense = t.contiguous();
    e.data = dense.const_data_ptr();
    if (is_own || !dense.is_same(t)) e.owner = std::make_shared<at::Tensor>(dense);
    return e;
  }
  // States as they are, each with its place in the whole.
  void add_states(const std::string& file, const std::vector<NamedState>& states) {
    taken_.tensors[file];  // also where there are none
    for (const NamedState& named : states) {
      StoredEntry& e = add(file, named.name, named.tensor, named.is_own);
      e.whole = e.sizes;
      e.offset.assign(e.whole.size(), 0);
    }
  }
  Snapshot taken() {
    to_host_.finish();
    return std::move(taken_);
  }

 private:
  Snapshot taken_;
  Snapshot& earlier_;
  ToHost to_host_;
};

// What [peft] of plugin.toml says: of the plugins that add something to a model, keys of PEFT with their values; of the
// model, where transformers has it in memory.
huggingface::Added added_to(const Member& model, const Plan& plan, const Declaration& d) {
  huggingface::Added added;
  std::set<const mortise_param*> factors;
  for (const Merge& m : d.merges) {
    added.products.push_back({m.into->name, m.left->name, m.right->name, m.scale, m.transposed});
    factors.insert({m.left, m.right});
  }
  // What is new is nowhere else, whether it learned or not.
  for (const auto& p : d.params)
    if ((p.info.trainable || p.has_tag("new")) && !factors.contains(&p)) {
      added.learned.push_back(p.name);
      if (!p.other_names.empty()) added.tied.push_back(p.name);
    }
  if (const Value* prefix = fact_of(*model.info, "peft", "prefix")) added.prefix = prefix->as_text();
  for (const Member& member : plan.members) {
    if (!member.table || !fact_of(*member.info, "peft", "peft_type")) continue;
    auto& settings = added.settings.emplace_back();
    for (const auto& [name, fact] : member.info->facts.at("peft")) {
      const Value* value = value_of_fact(member, "peft", name);
      settings[name] = value ? value->text() : fact.text();
    }
  }
  return added;
}

// What the model's folder says of itself; "" if plugin.toml has no names for it. A key without a value has that of the
// fact of its name.
std::string model_config(const Declared& declared, const Declaration& d,
                         const std::map<std::string, std::string>& tokens) {
  const Member& model = *declared.model.by->member;
  if (!model.table || !model.info->huggingface.has_config()) return "";
  std::map<std::string, std::string> values;  // of numbers, texts and lists, TOML is JSON
  for (const auto& [key, value] : model.table->values)
    if (value.is_set()) values[key] = value.text();
    else if (const auto fact = d.facts.find(key); fact != d.facts.end()) values[key] = std::to_string(fact->second);
  std::map<std::string, huggingface::Sizes> parameters;
  for (const auto& p : d.params) parameters[p.name] = p.whole_sizes();
  return huggingface::config_text(model.info->huggingface, values, parameters, d.classes,
                                  added_to(model, *declared.plan, d), tokens);
}

// What the tokenizer wants to have beside the weights. Its names are those of files of the folder, and none of the
// core's own.
void add_tokenizer_files(const Provided<mortise_tokenizer>& tokenizer, std::map<std::string, std::string>& texts) {
  if (!tokenizer || !tokenizer.has(&mortise_tokenizer::file)) return;
  constexpr uint32_t kMost = 64;
  for (uint32_t i = 0; i < kMost; ++i) {
    mortise_str name{}, contents{};
    try {
      tokenizer.call(&mortise_tokenizer::file, "file", i, &name, &contents);
    } catch (const PluginError& e) {
      if (e.status() == MORTISE_E_NOT_FOUND) return;
      throw;
    }
    const std::string file(text_of(name, tokenizer.by->id()));
    const bool is_plain =
        !file.empty() && file[0] != '.' && file.find('/') == file.npos && escape_control(file) == file;
    if (!is_plain || !texts.emplace("model/" + file, text_of(contents, tokenizer.by->id())).second)
      throw PluginError(MORTISE_E_PLUGIN, tokenizer.by->id() + " gives a file `" + escape_control(file) +
                                              "`, which cannot stand beside the weights");
  }
}

// The samples of each split, so that a run does not go on with others.
Json data_json(const Declared& d) {
  Json j;
  for (const char* split : {"train", "validation"})
    j[split] = {{"samples", d.samples->count(split)}, {"fingerprint", d.samples->fingerprint(split)}};
  return j;
}

void add_blobs(const Declared& d, std::map<std::string, std::string>& texts) {
  std::map<std::string, PluginBlobs> by_plugin;
  for (const KeptBlob& kept : d.edge->services.blobs) {
    std::string text;
    mortise_sink sink{};
    sink.struct_size = sizeof sink;
    sink.user = &text;
    sink.write = [](void* user, const void* data, uint64_t bytes) noexcept -> mortise_status {
      return guarded(
          [&] { static_cast<std::string*>(user)->append(text_of({static_cast<const char*>(data), size_t{bytes}})); });
    };
    const Instance& by = d.instances->of(*kept.host);
    clear_error();
    if (const mortise_status s =
            call_plugin({by.id(), "save", {}}, kept.blob->save, by.self, static_cast<const mortise_sink*>(&sink)))
      throw_from(by, s, "save");
    by_plugin[by.id()][std::string(view(kept.blob->name))] = {kept.blob->version, text};
  }
  for (const auto& [id, blobs] : by_plugin) texts[blobs_file(id)] = blobs_text(id, blobs);
}

// ---- what is restored ----

// Every tensor that `wanted` names must be in the file, and nothing else.
void restore_tensors(const Format& format, const Found& checkpoint, const std::string& file,
                     const std::vector<NamedState>& wanted) {
  const std::string path = checkpoint.path + "/" + file;
  const RunFile open(checkpoint.path, file);
  const MappedFile mapped(open.descriptor(), open.path());
  std::map<std::string, StoredEntry> found;
  for (StoredEntry& e : read_entries(format, mapped.bytes())) found.emplace(e.name, std::move(e));
  for (const NamedState& w : wanted) {
    const auto stored = found.find(w.name);
    if (stored == found.end()) refuse(path, "it has no `" + w.name + "`, which this run needs");
    const StoredEntry& e = stored->second;
    const at::IntArrayRef sizes = w.is_part ? at::IntArrayRef(w.whole) : w.tensor.sizes();
    if (sizes != e.sizes || dtype_of(w.tensor.scalar_type()) != e.dtype ||
        e.bytes != static_cast<uint64_t>(c10::multiply_integers(sizes)) * w.tensor.element_size())
      refuse(path, "`" + w.name + "` has another shape or dtype than in this run");
    at::Tensor there = at::from_blob(const_cast<void*>(e.data), e.sizes, w.tensor.options().device(at::kCPU));
    if (w.placement) there = placed_part(there, *w.placement, w.placement->rank);
    if (w.is_part) there = there.reshape(-1).narrow(0, w.offset, w.tensor.numel()).view(w.tensor.sizes());
    w.tensor.copy_(there);
    found.erase(stored);
  }
  if (!found.empty()) refuse(path, "it has `" + found.begin()->first + "`, which this run does not know");
}

void restore_parameters(const Allocated& a, const Found& checkpoint) {
  std::vector<NamedState> masters;
  for (const auto& s : a.host().parameters().all()) {
    const mortise_param& p = *s.declared;
    masters.push_back({p.name, s.master});
    if (!p.is_in_parts()) continue;
    masters.back() = {.name = p.name,
                      .tensor = s.master.view(-1),
                      .is_part = true,
                      .whole = p.whole_sizes(),
                      .placement = p.is_placed() ? &p.placement : nullptr,
                      .offset = p.shards.own.offset};
  }
  restore_tensors(a.declared.format, checkpoint, kModelFile + extension(a.declared), masters);
  for (auto& s : a.host().parameters().all()) a.host().parameters().cast(*s.declared);
}

// What plugins keep beside parameters; anew, where the checkpoint has nothing of a plugin.
void restore_kept(const Allocated& a, const Found& checkpoint) {
  for (auto& [plugin, states] : a.services->kept()) {
    const std::string file = kept_file(*plugin) + extension(a.declared);
    if (has_file(checkpoint.path, file)) restore_tensors(a.declared.format, checkpoint, file, states.named());
    else states.copy_masters();
  }
}

void restore_blobs(const Declared& d, const Found& checkpoint) {
  std::map<std::string, PluginBlobs> by_plugin;
  for (const KeptBlob& kept : d.edge->services.blobs) {
    const Instance& by = d.instances->of(*kept.host);
    const std::string file = blobs_file(by.id());
    if (!by_plugin.contains(by.id())) {
      const auto text = read_run_file_if_any(checkpoint.path, file, kMaxBlobs);
      by_plugin[by.id()] = text ? parse_blobs(*text, checkpoint.path + "/" + file) : PluginBlobs{};
    }
    const PluginBlobs& blobs = by_plugin[by.id()];
    const auto saved = blobs.find(std::string(view(kept.blob->name)));
    if (saved == blobs.end()) continue;  // it was not there when this was saved
    clear_error();
    if (const mortise_status s = call_plugin({by.id(), "load", {}}, kept.blob->load, by.self, saved->second.version,
                                             str(saved->second.text)))
      throw_from(by, s, "load");
  }
}

RunState restore_counts(const Declared& d, const Found& checkpoint) {
  const std::string text = read_run_file(checkpoint.path, kStateFile, kMaxState);
  const RunState s = parse_state(text, checkpoint.path + "/" + kStateFile, checkpoint.step);
  mortise_clock& c = d.edge->services.clock;
  c.attempted = s.attempted;
  c.applied = s.applied;
  c.samples = s.samples;
  c.tokens = s.tokens;
  return s;
}

// One split as it was against what it is: both texts, or "" if they agree.
std::string difference(const Json& was, const Json& is) {
  const auto text = [](const Json& j) {
    const std::string fingerprint = j.value("fingerprint", "");
    return std::to_string(j.value("samples", int64_t{-1})) + " samples" +
           (fingerprint.empty() ? "" : " (" + fingerprint.substr(0, 80) + ")");
  };
  return was == is ? "" : "was " + text(was) + ", is " + text(is);
}

// `now`: what plays the part of the recorded `split` in this run; `or_else`: what to do but put the data back.
Diagnostic data_changed(const Declared& d, const std::string& split, const std::string& now,
                        const std::string& or_else) {
  return trouble(kExitData, "data_changed", "the data of the split `" + split + "` is not what this run began with",
                 d.data.by->id() + ": " + d.samples->about(now), "put the data back as it was, or " + or_else);
}

void check_data(const Declared& d, const Found& checkpoint) {
  const auto text = read_run_file_if_any(checkpoint.path, kDataFile, kMaxData);
  if (!text) return;  // saved before samples were recorded
  const Json was = Json::parse(*text, nullptr, /*allow_exceptions=*/false), is = data_json(d);
  for (const char* split : {"train", "validation"}) {
    const bool right = was.is_object() && was.contains(split) && was[split].is_object();
    if (!right) refuse(checkpoint.path + "/" + kDataFile, "it does not say which samples the run had");
    std::string changed;
    try {
      changed = difference(was[split], is[split]);
    } catch (const Json::exception&) {
      refuse(checkpoint.path + "/" + kDataFile, "it does not say which samples the run had");
    }
    if (changed.empty()) continue;
    Diagnostic refused = data_changed(d, split, split, "begin a new run");
    refused.lines = {changed};
    refused.effect = "nothing was restored; with other samples it would be another run";
    throw Failure(refused);
  }
}

}  // namespace

std::optional<Diagnostic> changed_data(const Declared& d, const Found& checkpoint, const std::string& split) {
  const auto text = read_run_file_if_any(checkpoint.path, kDataFile, kMaxData);
  const Json was = text ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json();
  const auto recorded = was.is_object() ? was.find(split) : was.end();
  if (!was.is_object() || recorded == was.end() || !recorded->is_object()) return std::nullopt;  // it does not say
  // Not the number of samples: [eval] samples may be another.
  const auto fingerprint = recorded->find("fingerprint");
  const std::string is = d.samples->fingerprint("validation");
  if (fingerprint == recorded->end() || !fingerprint->is_string() || *fingerprint == is) return std::nullopt;
  return as_warning(data_changed(d, split, "validation", "name other data: --data FILE"),
                    "measured on what is there now; the model may have been trained on some of it");
}

std::vector<std::string> parameters_begun_anew(const Found& checkpoint) {
  const auto text = read_run_file_if_any(checkpoint.path, kNewFile, kMaxBlobs);
  if (!text) return {};
  try {
    return Json::parse(*text).get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    refuse(checkpoint.path + "/" + kNewFile, "it is no list of names");
  }
}

std::string data_text(const Declared& d) {
  std::string text = data_json(d).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  must_be_readable(kDataFile, text, kMaxData);
  return text;
}

TensorFormat tensor_format(const Declared& d) {
  const Format format = d.format;
  const Instances& instances = *d.instances;
  return {extension(d), [format, &instances](const std::vector<StoredEntry>& entries, const Sink& sink) {
            diagnosed(instances, [&] { write_entries(format, entries, sink); });
          }};
}

// Micro-batches that each rank of now has taken where each of other ranks took `state.cursor`: of the same samples.
static int64_t cursor_of(const Declared& d, const RunState& state) {
  const mortise_clock& clock = d.edge->services.clock;
  if (state.ranks == clock.ranks) return state.cursor;
  const auto step = static_cast<int64_t>(d.lengths.samples_per_step);
  // Ranks that see the same samples count once in a clock, and each is a process.
  const int64_t processes = state.ranks * (d.edge->services.world.size / clock.ranks);
  const std::string were = with_commas(processes) + (processes == 1 ? " rank" : " ranks"),
                    are = std::to_string(d.edge->services.world.size);
  const auto refuse_ranks = [&](const std::string& why) {
    Diagnostic refused = mistake("batch_changed", "the run has steps of " + were + why, {},
                                 "--ranks " + std::to_string(processes) + ", which has the same steps");
    refused.fixes.push_back(
        "a new run, whose manifest states the samples of a step (global_batch_size): that one can have other ranks");
    refused.effect = "nothing was restored";
    throw Failure(refused);
  };
  if (state.step_samples == 0) refuse_ranks("; how many samples a step had is not recorded");
  if (state.step_samples != step)
    refuse_ranks(" with " + with_commas(state.step_samples) + " samples; with " + are + " a step has " +
                 with_commas(step));
  const int64_t samples = d.samples->count("train"), micro = clock.micro_batch_size;
  const auto per_epoch = [&](int64_t together) {
    return d.key("data", "drop_last").as_bool() ? samples / together : (samples + together - 1) / together;
  };
  const int64_t before = per_epoch(micro * state.ranks), now = per_epoch(micro * clock.ranks),
                taken = state.cursor % before * state.ranks;
  if (taken % clock.ranks != 0) refuse_ranks("; " + are + " cannot go on where these were within an epoch");
  if (d.key("data", "drop_last").as_bool() && before * state.ranks != now * clock.ranks)
    refuse_ranks(", and `data.drop_last` leaves other samples out with " + are);
  return state.cursor / before * now + taken / clock.ranks;
}

std::vector<std::pair<std::string, at::Tensor>> whole_masters(Host& host) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const ParameterState& s : host.parameters().all())
    if (!s.declared->is_in_parts()) all.emplace_back(s.declared->name, s.master);
  return all;
}

std::string first_unlike(const Runnable& r) {
  if (Ranks(r.host().services).alone()) return "";
  auto all = whole_masters(r.host());
  const bool is_all = all.size() == r.host().parameters().all().size();
  const auto add = [&](const std::string& by, const std::vector<NamedState>& states) {
    for (const NamedState& s : states) all.emplace_back(s.name + " of " + by, s.tensor);
  };
  for (const auto& o : *r.optimizers)
    if (!o.is_in_parts() && !r.store) add(o.id(), o.states());  // those on a disk would all be read
  for (const auto& [plugin, states] : r.allocated.services->kept())
    if (is_all) add(plugin->id, states.named());
  return Ranks(r.host().services).first_unlike(all);
}

Gathered gather(const Runnable& r) {
  Gathered all;
  const Ranks ranks(r.host().services);
  for (const auto& p : r.host().parameters().all())
    if (const mortise_param& of = *p.declared; of.is_in_parts()) {
      const InParts parts{of, of.sizes, of.whole_sizes(), of.shards.pieces};
      all[kModelFile].push_back({of.name, gathered(p.master, parts, ranks, r.host().device())});
    }
  for (const auto& o : *r.optimizers)
    if (o.is_in_parts()) std::ranges::move(o.gathered_states(ranks), std::back_inserter(all[kRankFile]));
  if (all.contains(kModelFile))
    for (const auto& [plugin, states] : r.allocated.services->kept()) all[kept_file(*plugin)] = states.gathered(ranks);
  return all;
}

Snapshot capture(const Runnable& r, const RunState& state, const huggingface::Beside& beside, const Gathered& gathered,
                 Snapshot&& earlier) {
  const Declared& d = r.declared();
  const auto all_of = [&](const std::string& file) {
    const auto found = gathered.find(file);
    return found == gathered.end() ? std::vector<NamedState>() : found->second;
  };
  Capture tensors(earlier);
  size_t n = 0;
  const auto masters = all_of(kModelFile);
  for (const auto& p : r.host().parameters().all()) {
    const bool is_gathered = p.declared->is_in_parts();
    tensors.add(kModelFile, p.declared->name, is_gathered ? masters.at(n++).tensor : p.master, is_gathered);
  }
  for (const auto& o : *r.optimizers)
    if (!o.is_in_parts()) tensors.add_states(kRankFile, o.states());
  tensors.add_states(kRankFile, all_of(kRankFile));
  for (const auto& [plugin, states] : r.allocated.services->kept()) {
    const std::string file = kept_file(*plugin);
    if (const auto named = gathered.contains(file) ? all_of(file) : states.named(); !named.empty())
      tensors.add_states(file, named);
  }
  Snapshot s = tensors.taken();
  add_blobs(d, s.texts);
  s.texts[kStateFile] = state_text(state);
  s.texts[kDataFile] = data_text(d);
  if (!d.anew.empty()) s.texts[kNewFile] = Json(d.anew).dump(1) + "\n";
  if (std::string config = model_config(d, r.host().declaration(), beside.tokens); !config.empty()) {
    s.texts[std::string("model/") + huggingface::kConfigFile] = std::move(config);
    if (!beside.generation.empty()) s.texts[std::string("model/") + huggingface::kGenerationFile] = beside.generation;
  }
  diagnosed(*d.instances, [&] { add_tokenizer_files(d.edge->services.tokenizer, s.texts); });
  return s;
}

RunState restore(const Allocated& a, const Found& checkpoint) {
  return diagnosed(*a.declared.instances, [&] {
    restore_parameters(a, checkpoint);
    restore_kept(a, checkpoint);
    const RunState state = restore_counts(a.declared, checkpoint);
    restore_blobs(a.declared, checkpoint);
    return state;
  });
}

RunState restore(const Runnable& r, const Found& checkpoint) {
  const Declared& d = r.declared();
  return diagnosed(*d.instances, [&] {
    check_data(d, checkpoint);
    const RunState state = restore(r.allocated, checkpoint);
    if (state.seed != r.host().seed()) refuse(checkpoint.path + "/" + kStateFile, "it is of another seed");
    std::vector<NamedState> states;
    for (const auto& o : *r.optimizers)
      for (const NamedState& s : o.states()) states.push_back(s);
    restore_tensors(d.format, checkpoint, kRankFile + extension(d), states);
    r.step->set_cursor(cursor_of(d, state));
    r.ledger->restore(state.applied, state.scale);
    return state;
  });
}

}  // namespace mortise
