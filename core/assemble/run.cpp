#include "core/assemble/run.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "core/abi/error.hpp"
#include "core/abi/lost_device.hpp"
#include "core/assemble/allocated.hpp"
#include "core/assemble/state.hpp"
#include "core/base/host_name.hpp"
#include "core/base/text.hpp"
#include "core/declare/join.hpp"
#include "core/loop/ranks.hpp"
#include "core/loop/train.hpp"
#include "core/plan/facts.hpp"
#include "core/store/hash.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

DeclareRequest declare_request(const RunRequest& r) {
  DeclareRequest d;
  d.manifest = r.manifest;
  d.plan = r.plan;
  d.probe = r.probe;
  d.weights = r.weights;
  if (!r.checkpoint.path.empty()) d.anew = parameters_begun_anew(r.checkpoint);
  d.open_device = true;
  d.train_samples = r.purpose == Purpose::kTrain;
  d.split = r.split;
  d.world = r.world;
  return d;
}

void generate(const Declared& d, const SampleRequest& ask, const std::function<void(std::string_view)>& emit) {
  mortise_sample_request r{};
  r.struct_size = sizeof r;
  r.tokens = ask.tokens;
  r.prompt = str(ask.prompt);
  r.temperature = ask.temperature;
  r.top_k = ask.top_k;
  r.seed = ask.seed;
  r.top_p = ask.top_p;
  r.text = ask.text;
  std::vector<mortise_str> stop;
  for (const std::string& text : ask.stop) stop.push_back(str(text));
  r.stop = stop.empty() ? nullptr : stop.data();
  r.n_stop = static_cast<uint32_t>(stop.size());
  r.user = const_cast<void*>(static_cast<const void*>(&emit));
  r.emit = [](void* user, mortise_str piece) noexcept -> mortise_status {
    return guarded([&] { (*static_cast<const std::function<void(std::string_view)>*>(user))(text_of(piece)); });
  };
  d.sampler.call(&mortise_sampler::generate, "generate", static_cast<const mortise_sample_request*>(&r));
}

// A key of [checkpoint] for the store; a length in steps.
std::optional<int64_t> checkpoint_key(const Declared& d, const std::string& key) {
  const Value& v = d.key("checkpoint", key.c_str());
  if (!v.is_set()) return std::nullopt;
  return std::holds_alternative<Amount>(v.data) ? d.lengths.steps(v, "checkpoint." + key) : v.as_int();
}

SaverOptions saver_options(const Declared& d, const RunRequest& request, const RunState& state) {
  SaverOptions o;
  if (request.dir.empty() || !d.format) return o;
  o.root = request.dir + "/checkpoints";
  o.format = tensor_format(d);
  o.retention = read_retention([&](const std::string& key) { return checkpoint_key(d, key); });
  o.background = saves_in_background(d);
  for (size_t m = 0; m < d.plan->members.size(); ++m) {
    const PluginInfo& info = *d.plan->members[m].info;
    const std::string_view loaded =
        d.instances->library(static_cast<int>(m));  // what runs, whatever its file is by now
    const std::string hash = loaded.empty() ? sha256_of_file(info.library) : sha256_of(loaded.data(), loaded.size());
    o.plugins[info.schema.id] = {info.version, hash};
  }
  if (!request.checkpoint.path.empty()) {
    o.resumed = request.checkpoint.step;
    o.confirmed = state.confirmed;
    // The best by another metric is none by this one.
    const Value& best = d.key("checkpoint", "best");
    if (!best.is_set() || best.as_text() == state.best_by) o.best = {state.best, state.best_step};
  }
  return o;
}

// A prompt that a terminal can show on one line.
std::string first_prompt(const Plan& plan) {
  const std::vector<std::string> prompts = prompts_of(plan);
  return prompts.empty() || escape_control(prompts[0]) != prompts[0] ? "" : prompts[0];
}

TrainOptions train_options(const Declared& d, const RunRequest& request, const RunState& state,
                           const Summary& summary) {
  TrainOptions o;
  o.length = d.lengths.run;
  o.step_samples = static_cast<int64_t>(d.lengths.samples_per_step);
  o.log_every = d.lengths.period(d.key("log", "every"), "log.every");
  const Value& eval_every = d.key("eval", "every");
  o.eval_every = eval_every.is_set() ? d.lengths.period(eval_every, "eval.every")
                                     : Period{static_cast<int64_t>(d.lengths.steps_per_epoch), 0};
  o.save_every = d.lengths.period(d.key("checkpoint", "every"), "checkpoint.every");
  o.eval_at_start = d.key("eval", "at_start").as_bool();
  o.eval_at_end = d.key("eval", "at_end").as_bool();
  o.save_at_end = d.key("checkpoint", "at_end").as_bool();
  if (const Value& best = d.key("checkpoint", "best"); best.is_set()) {
    o.best_by = best.as_text();
    o.larger_is_better = d.measured().at(o.best_by);
  }
  if (const Value& limit = d.key("run", "time_limit"); limit.is_set()) o.time_limit_s = limit.as_amount().number;
  o.dir = request.dir;
  o.resume_command = request.resume_command;
  o.prompt = first_prompt(*d.plan);
  o.name = d.manifest->name;
  o.plan_hash = d.plan->hash;
  o.summary = summary;
  o.first_loss = state.loss_first;
  o.evaluated = state.evaluated;
  o.warn = request.warn;
  return o;
}

// Of a table and a key the lines, without what stands around them; of what is no key's, all that the table has.
using Lines = std::map<std::pair<std::string, std::string>, std::vector<std::string>>;

Lines lines_of(const std::string& text) {
  std::istringstream in(text);
  Lines all;
  std::string table;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos || line.starts_with("#")) continue;
    line = line.substr(begin);
    if (line.starts_with("[")) table = line;
    const bool has_key = std::min(line.find(" = "), line.find(": ")) != line.npos;
    all[{table, has_key ? line.substr(0, line.find(' ')) : ""}].push_back(line);
  }
  return all;
}

// "in [optimizer] `lr = 0.1`, where rank 0 has `lr = 0.2`": the first that is not the same.
std::string first_difference(const std::string& own, const std::string& first) {
  const Lines mine = lines_of(own), its = lines_of(first);
  const auto said = [](const Lines& lines, const auto& key, size_t i) {
    const auto found = lines.find(key);
    return found == lines.end() || i >= found->second.size() ? "nothing" : "`" + escape_control(found->second[i]) + "`";
  };
  Lines both = mine;
  both.insert(its.begin(), its.end());
  for (const auto& [key, lines] : both)
    for (size_t i = 0; i <= lines.size(); ++i)
      if (const std::string a = said(mine, key, i), b = said(its, key, i); a != b)
        return (key.second.empty() || key.first.empty() ? "" : "in " + key.first + " ") + a + ", where rank 0 has " + b;
  return "a plugin has another version, a fallback works there, or tables stand in another order";
}

// Ranks of different runs would wait for one another, or add up what does not belong together.
void must_agree(const Declared& d, const std::string& what, const std::string& text, Purpose purpose) {
  const std::string first = said_by_first(d, what, text);
  if (Ranks(d.edge->services).most(first != text) == 0) return;
  Diagnostic refused =
      mistake("ranks_differ", "", {}, "the same manifest, plugins, data and version of Mortise on every host");
  if (first == text) refused.message = "another rank has another " + what + " than rank 0: it says which";
  else
    refused.message = "rank " + std::to_string(d.edge->services.world.rank) + " has another " + what +
                      " than rank 0: " + first_difference(text, first);
  refused.effect = purpose == Purpose::kTrain ? "nothing was trained" : "nothing was measured";
  throw Failure(refused);
}

// What rank 0 has chosen to go on from: STEP PATH, or nothing.
Found chosen_by_first(const Declared& d, const Found& own) {
  const std::string text = own.path.empty() ? "" : std::to_string(own.step) + " " + fs::absolute(own.path).string();
  const std::string chosen = said_by_first(d, "checkpoint", text);
  const size_t space = chosen.find(' ');
  return space == chosen.npos ? Found{} : Found{chosen.substr(space + 1), std::stoll(chosen.substr(0, space))};
}

// Ranks whose parameters begin otherwise would never be one model.
void must_begin_alike(const Allocated& a) {
  diagnosed(*a.declared.instances, [&] {
    const Ranks ranks(a.host().services);
    std::string places;
    for (const mortise_param& p : a.host().declaration().params)
      for (const auto n : {p.placement.axis, p.placement.owner, static_cast<int>(p.placement.dim)})
        places += std::to_string(n) + " ";
    const auto of_each = ranks.of_each({static_cast<int64_t>(hash_text(places) >> 1)})[0];
    if (of_each != std::vector<int64_t>(of_each.size(), of_each[0]))
      throw PluginError(MORTISE_E_PLUGIN, "`place.AXIS` of a parameter is not the same on every rank");
    const std::string name = ranks.first_unlike(whole_masters(a.host()));
    if (!name.empty())
      throw PluginError(MORTISE_E_DATA, name + " does not begin with the same bits on every rank",
                        a.declared.comm.by->id());
  });
}

}  // namespace

std::unique_ptr<Edge> new_host(const PointTable& points, uint64_t seed, const mortise_program* program) {
  auto host = std::make_unique<Host>(points, seed);
  if (program) host->register_table("mortise.program/0", program);
  return host;
}

// `runnable.allocated` alone is filled for Purpose::kUse.
struct Run::Parts {
  RunRequest request;
  RunState state;
  Summary summary;
  Runnable runnable;
  huggingface::Beside beside;
  const Declared& declared() const { return runnable.declared(); }
};

Run::Run(RunRequest request) : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.request = std::move(request);
  const bool train = p.request.purpose == Purpose::kTrain;
  if (train) fixed_text(p.request.fixed);  // what no save could write is refused before the first step
  const auto seed = static_cast<uint64_t>(p.request.manifest->get("run", "seed").as_int());
  Declared declared = declare(declare_request(p.request), new_host(p.request.plan->points, seed, p.request.program));
  const bool alone = p.request.world.size == 1;
  const std::string data = train || !alone ? data_text(declared) : "";  // likewise
  if (!alone)
    diagnosed(*declared.instances, [&] {
      must_agree(declared, "run", p.request.alike, p.request.purpose);
      must_agree(declared, "data", data, p.request.purpose);
      p.request.checkpoint = chosen_by_first(declared, p.request.checkpoint);
    });
  const bool restored = !p.request.checkpoint.path.empty();
  if (train && restored) check_fixed(p.request.fixed, p.request.checkpoint);
  Allocated allocated = allocate(std::move(declared), !restored);
  if (train) p.runnable = make_runnable(std::move(allocated));
  else p.runnable.allocated = std::move(allocated);
  if (restored)
    p.state = train ? restore(p.runnable, p.request.checkpoint) : restore(p.runnable.allocated, p.request.checkpoint);
  must_begin_alike(p.runnable.allocated);
  if (train) p.beside = huggingface::beside_in(restored ? p.request.checkpoint.path + "/model" : p.request.weights);
  p.summary = summary_of(p.declared(), p.request.dir);
  if (!train && restored && !p.request.split.empty())
    if (auto changed = changed_data(p.declared(), p.request.checkpoint, p.request.split))
      p.summary.warnings.push_back(*std::move(changed));
}

Run::~Run() {
  if (!lost_device().empty()) static_cast<void>(parts_.release());  // what lies there cannot be given back
}

const Summary& Run::summary() const { return parts_->summary; }
int64_t Run::step() const { return parts_->declared().edge->services.clock.applied; }
bool Run::can_sample() const { return static_cast<bool>(parts_->declared().sampler); }

int Run::train(const Interrupts& interrupt) {
  const Runnable& r = parts_->runnable;
  const Declared& d = r.declared();
  Saver saver(saver_options(d, parts_->request, parts_->state));
  std::function<std::string()> sample;
  if (d.sampler)
    sample = [&d] {
      std::string text;
      generate(d, {}, [&](std::string_view piece) { text += piece; });
      return text;
    };
  Gathered gathered;
  const TrainParts parts{r.host(),
                         *d.listeners,
                         *d.instances,
                         *d.samples,
                         *r.allocated.passes,
                         *r.step,
                         saver,
                         *r.ledger,
                         d.device,
                         [&](const RunState& s) {
                           parts_->request.before_save();
                           Snapshot snapshot =
                               capture(r, s, parts_->beside, std::exchange(gathered, {}), std::move(saver.earlier()));
                           snapshot.texts[kFixedFile] = fixed_text(parts_->request.fixed);
                           return snapshot;
                         },
                         sample,
                         [&] {
                           gathered = gather(r);
                           return first_unlike(r);
                         }};
  TrainOptions options = train_options(d, parts_->request, parts_->state, parts_->summary);
  if (parts_->request.world.size > 1)
    diagnosed(*d.instances, [&] {
      options.first_rank_saves = !said_by_first(d, "saves", saver.can_save() ? "here" : "").empty();
      options.hosts = said_by_each(d.edge->services, "host", host_name());
    });
  return Training(parts, options).run(interrupt);
}

Measured Run::evaluate() {
  return diagnosed(*parts_->declared().instances, [&] { return parts_->runnable.allocated.passes->evaluate(); });
}

void Run::sample(const SampleRequest& request, const std::function<void(std::string_view)>& emit) {
  diagnosed(*parts_->declared().instances, [&] { generate(parts_->declared(), request, emit); });
}

}  // namespace mortise
