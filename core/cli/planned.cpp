// From a manifest to a plan: where plugins are looked for, what is reported together, what a run directory may ask for.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "core/abi/edge.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/run_directory.hpp"
#include "core/cli/wait_policy.hpp"
#include "core/cli/world.hpp"
#include "core/declare/declared.hpp"
#include "core/declare/device.hpp"
#include "core/declare/summary.hpp"
#include "core/plan/devices.hpp"
#include "core/plan/facts.hpp"
#include "core/store/files.hpp"
#include "formats/huggingface/config.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {

// NULL in the program, which links no LibTorch (docs/adr/0014).
[[gnu::weak, gnu::visibility("hidden")]] std::unique_ptr<Edge> make_host(const PointTable& points, uint64_t seed);

namespace {

// Where the person, or who installed Mortise, put plugins.
std::vector<std::string> own_plugin_folders(const Arguments& args) {
  std::vector<std::string> folders;
  for (const auto& dir : args.all("--plugin-path")) folders.push_back(fs::absolute(dir).string());
  if (const char* path = std::getenv("MORTISE_PLUGIN_PATH"))
    for (const auto& dir : split(path, ':'))
      if (!dir.empty()) folders.push_back(dir);
  if (const char* home = std::getenv("HOME")) folders.push_back(std::string(home) + "/.local/share/mortise/plugins");
  folders.push_back(installation().plugins);
  return folders;
}

fs::path real(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path : found;
}

}  // namespace

std::map<std::string, PluginInfo> catalogue(const Arguments& args, const ManifestRequest* request,
                                            std::vector<std::string>& searched, Report& report) {
  std::vector<std::string> folders;
  if (request) folders = plugin_paths_of(*request);
  const std::vector<std::string> own = own_plugin_folders(args);
  folders.insert(folders.end(), own.begin(), own.end());
  searched.clear();
  std::set<fs::path> seen;
  for (const auto& dir : folders)  // one folder named twice does not hold its plugins twice
    if (seen.insert(real(dir)).second) searched.push_back(dir);
  return scan_plugins(searched, report);
}

std::map<std::string, PluginSchema> schemas_of_plugins(const Arguments& args) {
  Report quiet;
  std::vector<std::string> searched;
  std::map<std::string, PluginSchema> schemas;
  for (const auto& [id, info] : catalogue(args, nullptr, searched, quiet)) schemas[id] = info.schema;
  return schemas;
}

static World& own_world() {
  static World world = world_of_environment();
  return world;
}

const World& world() { return own_world(); }

void must_be_alone(const std::string& why, const std::string& effect) {
  if (world().size == 1) return;
  Diagnostic d =
      mistake("ranks_not_started", world().by + " started " + std::to_string(world().size) + " processes, and " + why,
              {}, "start one process, " + without_launcher(world()));
  d.effect = effect;
  throw Failure(d);
}

static std::string flag_of(int64_t ranks, int64_t local) {
  return ranks > 1 && local == ranks ? " --ranks " + std::to_string(ranks) : "";
}

std::string ranks_flag() { return flag_of(world().size, world().local_size); }

std::string ranks_flag_of(const std::string& dir) {
  const auto status = status_of(dir);
  return status && status->ranks > 0 ? flag_of(status->ranks, status->local_ranks) : ranks_flag();
}

void plan_for(int ranks) {
  World& world = own_world() = World();
  world.size = world.local_size = ranks;
  if (ranks > 1) world.by = kOwnLauncher;
}

// Ids of devices that were opened, and could not be: why.
static std::map<std::string, std::string>& unusable() {
  static std::map<std::string, std::string> all;
  return all;
}

// Facts of plugin.toml say what a plugin cannot start without: [needs] file = "/dev/…", not hidden_by = "VARIABLE", or
// one rank.
std::string can_start(const PluginInfo& info, int64_t first_device) {
  if (const auto known = unusable().find(info.schema.id); known != unusable().end()) return known->second;
  if (world().size > 1 && fact_of(info, "ranks", "at_most"))
    return "it serves one rank, and there are " + std::to_string(world().size);
  const int local = world().local_size, seen = devices_seen(info);
  // Under another launcher each rank may be shown a single one that is its own.
  if (seen > 0 && local > 1 && seen - first_device < local && (seen > 1 || world().by == kOwnLauncher))
    return "each of the " + std::to_string(local) + " ranks here needs its own" +
           (first_device > 0 ? ", from number " + std::to_string(first_device) + " on" : "") + ", and there " +
           (seen == 1 ? "is 1" : "are " + std::to_string(seen));
  // A variable that lists devices: empty, or with a negative number first, it hides them all.
  const Value* variable = fact_of(info, "needs", "hidden_by");
  const char* shown = variable ? std::getenv(variable->as_text().c_str()) : nullptr;
  if (shown && (!*shown || *shown == '-')) return variable->as_text() + " hides it";
  const Value* file = fact_of(info, "needs", "file");
  if (!file || fs::exists(file->as_text())) return "";
  const Value* why = fact_of(info, "needs", "why");
  return why ? why->as_text() : "no " + file->as_text();
}

Plan plan_here(const Manifest& manifest, const std::map<std::string, PluginInfo>& catalogue, Report& report) {
  const auto* index = std::get_if<int64_t>(&manifest.get("device", "index").data);
  const auto starts = [first = index ? *index : 0](const PluginInfo& info) { return can_start(info, first); };
  return make_plan(manifest, catalogue, starts, report);
}

namespace {

// A run directory may come from somebody else, and a plugin is native code: a folder that only its run.toml names is
// not taken. Throws Failure.
void refuse_foreign_plugins(const Arguments& args, const PlanSource& source, ManifestRequest request) {
  std::set<fs::path> own;
  for (const auto& folders : {own_plugin_folders(args), source.folders})
    for (const std::string& folder : folders) own.insert(real(folder));
  request.includes.clear();
  std::vector<std::string> foreign;
  std::string trusted;
  for (const std::string& folder : plugin_paths_of(request)) {
    if (own.contains(real(folder))) continue;
    foreign.push_back(folder);
    trusted += " --plugin-path " + shell_word(folder);
  }
  if (foreign.empty()) return;
  const bool one = foreign.size() == 1;
  Diagnostic d =
      mistake("foreign_plugins",
              source.file + (one ? " names a folder of plugins, " : " names folders of plugins, ") +
                  join(foreign, ", ") + (one ? ", which is" : ", which are") + " not on your plugin path",
              {source.file, 0, 0, "plugins.path"}, (one ? "if you trust it:" : "if you trust them:") + trusted);
  d.effect = "no plugin was loaded: a run directory may come from somebody else, and a plugin is native code";
  throw Failure(d);
}

bool provides(const PluginSchema& plugin, const std::string& slot) {
  return std::ranges::find(plugin.provides, slot) != plugin.provides.end();
}

// Of a run that is there already, what is missing is named on the command line; and nobody typed the --use that
// switched its plugin on.
Diagnostic as_typed_for(const PlanSource& source, Diagnostic d) {
  if (source.dir.empty() || d.code != "nothing_provides") return d;
  if (source.slot == "sample" && d.about == "tokenizer") {
    const std::string& typed = globals().command;
    return mistake("no_tokenizer", source.dir + " was trained on ids; no tokenizer came with it", {},
                   "mortise" + typed.substr(std::min(typed.find(" sample "), typed.size())) + " --tokenizer FOLDER");
  }
  if (!source.slot.empty()) std::erase_if(d.positions, [](const Position& p) { return p.line == 0; });
  for (std::string& fix : d.fixes)
    for (size_t at = 0; (at = fix.find('[', at)) != fix.npos;) {
      if (const size_t end = fix.find(']', at); end != fix.npos) fix.erase(end, 1);
      fix.replace(at, 1, "--use ");
    }
  return d;
}

// What was found at the three stages, each thing once and without what only follows from another mistake. A folder with
// a broken plugin stops nobody who does not use it.
Report together(const Report& scanned, const Report& read, const Report& planned, const Manifest& manifest,
                const PlanSource& source) {
  Report all;
  std::set<std::string> seen, mistyped;  // families
  const auto add = [&](Diagnostic d) {
    if (globals().strict && d.level == Level::kWarning) d.level = Level::kError;
    if (seen.insert(d.code + d.message + (d.positions.empty() ? "" : d.positions[0].text())).second)
      all.add(std::move(d));
  };
  for (Diagnostic d : scanned.all()) {
    const bool used = manifest.unread.contains(d.plugin) ||
                      std::ranges::any_of(manifest.plugins,
                                          [&](const PluginTable& t) { return t.enabled && t.schema->id == d.plugin; });
    if (!used && !read.has_errors()) {
      d.level = Level::kWarning;
      if (d.effect.empty()) d.effect = "it was left out; this run does not use it";
    }
    add(std::move(d));
  }
  for (const Diagnostic& d : read.all()) {
    if (d.code == "unknown_table")
      for (const std::string& id : {d.about, d.meant}) mistyped.insert(id.substr(0, id.find('.')));
    const auto refuses_it = [&](const Diagnostic& s) {
      return s.level == Level::kError && !s.plugin.empty() && s.plugin == d.plugin;
    };
    if (std::ranges::any_of(scanned.all(), refuses_it)) continue;  // that nobody is called so only follows
    add(d);
  }
  // What a plugin that could not be read would provide, nobody knows.
  for (const Diagnostic& d : planned.all())
    if (d.code != "nothing_provides" || (manifest.unread.empty() && !mistyped.contains(d.about)))
      add(as_typed_for(source, d));
  return all;
}

// The run's device; NULL: none is on.
const Member* device_of(const Plan& plan) {
  const auto& claims = plan.at[kDevice].providers;
  return claims.empty() ? nullptr : &plan.members[static_cast<size_t>(claims.back().member)];
}

// plugin.toml of a device may name the key that says how threads wait: [device] wait = "KEY".
void wait_as_the_device_says(const Plan& plan) {
  const Member* const device = device_of(plan);
  const Value* policy = device ? value_of_fact(*device, "device", "wait") : nullptr;
  if (policy && policy->as_text() != "auto") begin_anew_waiting(policy->as_text());
}

void say_warnings_of(const PlanSource& source, const Report& all) {
  Report said;
  for (const Diagnostic& d : all.all())
    if (source.warnings == PlanSource::Warnings::kAll ||
        std::ranges::any_of(d.positions, [&](const Position& at) { return at.file != source.file; }))
      said.add(d);
  if (!globals().quiet && source.warnings != PlanSource::Warnings::kNone) say(said, "");
}

// The command line is a layer only where it says something.
Manifest manifest_of(const ManifestRequest& request, Report& report) {
  Manifest m = read_manifest(request, report);
  if (request.set.empty() && request.use.empty() && request.without.empty()) m.layers.pop_back();
  return m;
}

// The highest layer that names a plugin for the slot, on or off.
const PluginTable* table_naming(const Manifest& manifest, const std::string& slot) {
  const PluginTable* found = nullptr;
  for (const PluginTable& t : manifest.plugins)
    if (provides(*t.schema, slot) && (!found || t.layer > found->layer)) found = &t;
  return found;
}

void switch_on(Planned& p, const std::string& slot, Report& read) {
  const auto on = [&](const PluginTable& t) { return t.enabled && provides(*t.schema, slot); };
  const auto is_fatal = [](const Diagnostic& d) { return d.level == Level::kError && d.code != "set_not_on"; };
  if (slot.empty() || std::ranges::any_of(read.all(), is_fatal) || std::ranges::any_of(p.manifest.plugins, on)) return;
  const PluginTable* named = table_naming(p.manifest, slot);
  if (!named) return;
  p.request.use.push_back(named->schema->id);
  read = {};
  p.manifest = manifest_of(p.request, read);
}

// Folders named on the command line belong to the run, so that its run.toml says where its plugins were.
void add_plugin_folders(const Arguments& args, Manifest& manifest) {
  const auto table = manifest.tables.find("plugins");
  if (table == manifest.tables.end() || !args.has("--plugin-path")) return;
  Value& path = table->second["path"];
  std::vector<Value> folders = path.as_list();
  for (const auto& dir : args.all("--plugin-path")) {
    const std::string folder = fs::absolute(dir).lexically_normal().string();
    if (std::ranges::none_of(folders, [&](const Value& v) { return v.as_text() == folder; }))
      folders.push_back({folder, {}});
  }
  path = {std::move(folders), {"command line: --plugin-path", 0, 0, "plugins.path"}};
}

void make_plan_of(Planned& p, const PlanSource& source, const Report& read, Report& planned) {
  if (p.manifest.tables.empty()) return;  // a file that could not be read leaves nothing to plan
  if (source.weights) p.weights = weights_path(p.manifest.get("model", "weights"), planned);
  if (!read.has_errors() && !(p.weights.empty() && source.dir.empty())) {
    Report quiet;  // what it finds is found again
    const Plan plan = plan_here(p.manifest, p.catalogue, quiet);
    if (const auto& claims = plan.at[kModel].providers; !p.weights.empty() && !claims.empty())
      take_architecture(p.weights, plan.members[static_cast<size_t>(claims.back().member)].info->schema.id, p.catalogue,
                        p.manifest, planned);
    if (!p.weights.empty()) {
      take_tokenizer(p.weights, plan, p.manifest);
      if (!planned.has_errors()) take_classes(p.weights, plan, p.manifest, planned);
    }
    if (!source.dir.empty()) take_own_tokenizer(source.dir, plan, p.manifest, planned);
  }
  p.plan = plan_here(p.manifest, p.catalogue, planned);
}

}  // namespace

std::unique_ptr<Planned> make_planned(const Arguments& args, const PlanSource& source) {
  auto p = std::make_unique<Planned>();
  Report scanned, read, planned;
  p->request = manifest_request(args, source.file);
  if (!source.dir.empty()) {
    p->request.text = read_run_file(source.dir, "run.toml", kMostManifestBytes);
    p->request.recorded = true;
    refuse_foreign_plugins(args, source, p->request);
  }
  p->catalogue = catalogue(args, &p->request, p->request.searched, scanned);
  for (const auto& [id, info] : p->catalogue) p->schemas[id] = info.schema;
  for (const Diagnostic& d : scanned.all())
    if (d.level == Level::kError && !p->schemas.contains(d.plugin)) p->request.refused.insert(d.plugin);
  p->request.catalogue = &p->schemas;
  p->manifest = manifest_of(p->request, read);
  switch_on(*p, source.slot, read);
  add_plugin_folders(args, p->manifest);
  make_plan_of(*p, source, read, planned);
  const Report all = together(scanned, read, planned, p->manifest, source);
  if (all.has_errors()) {
    say(all, "nothing was started.");
    throw Failed{all.exit_code()};
  }
  wait_as_the_device_says(p->plan);
  say_warnings_of(source, all);
  return p;
}

static std::unique_ptr<Edge> edge_of(const Planned& p) {
  const auto seed = static_cast<uint64_t>(p.manifest.get("run", "seed").as_int());
  return make_host ? make_host(p.plan.points, seed) : std::make_unique<Edge>(p.plan.points, seed);
}

void settle_device(Planned& p) {
  const Member& device = *device_of(p.plan);
  if (!device.table || device.table->fallback.empty()) return;
  auto refused = refusal_of_device(p.manifest, p.plan, world(), installation().probe, edge_of(p));
  if (!refused) return;
  const std::string id = device.info->schema.id, said = id + " cannot run: ", why = refused->message;
  unusable()[id] = why.starts_with(said) ? why.substr(said.size()) : why;
  Report planned;
  p.plan = plan_here(p.manifest, p.catalogue, planned);
  if (planned.has_errors()) {
    say(planned, "nothing was started.");
    throw Failed{planned.exit_code()};
  }
  say_warnings({as_warning(std::move(*refused), "the run is on " + device_of(p.plan)->info->schema.id)});
}

void refuse_start(const Planned& p, const Failure& failure) {
  Diagnostic d = failure.diagnostic;
  const bool of_weights = !p.weights.empty() && (d.at.starts_with(p.weights) || d.code == "matches_nothing");
  if (d.positions.empty() && of_weights)
    d.positions = {p.manifest.get("model", d.code == "matches_nothing" ? "new" : "weights").origin};
  const fs::path folder = fs::path(p.weights).parent_path();
  const bool other_sizes = d.code == "wrong_tensor" || d.code == "missing_tensors";
  if (std::error_code error; other_sizes && of_weights && !fs::is_directory(p.weights, error) &&
                             fs::exists(folder / huggingface::kConfigFile, error))
    d.fixes.insert(d.fixes.begin(), "name its folder, whose config.json says the sizes: [model] weights = " +
                                        json_string(folder.empty() ? "." : folder.string()));
  if (std::error_code error; other_sizes && of_weights && fs::is_directory(p.weights, error) &&
                             !fs::exists(fs::path(p.weights) / huggingface::kConfigFile, error))
    d.fixes.insert(d.fixes.begin(), p.weights + " has no " + huggingface::kConfigFile +
                                        ", which says the sizes: put it there, or state them in the model's table");
  const std::string by = d.positions.empty() ? "" : d.positions[0].file, flag = "command line: --data ";
  if (by.starts_with(flag) && fs::is_directory(by.substr(flag.size())))
    d.fixes = {"--data " + shell_word((fs::path(by.substr(flag.size())) / "*").string())};
  // Below the command line, nobody knows what the manifest is called.
  for (const std::string plan = "mortise plan "; std::string& fix : d.fixes)
    if (const size_t at = fix.find(plan + "--weights"); at != std::string::npos)
      fix.insert(at + plan.size(), shell_word(p.manifest.path) + " ");
  Report one;
  one.add(d);
  say(one, "nothing was started.");
  throw Failed{d.exit};
}

Summary declared_summary(const Planned& p) {
  set_log_level(LogLevel::kWarning);  // nothing is computed yet: what a plugin notes of that is said where it is
  DeclareRequest ask;
  ask.manifest = &p.manifest;
  ask.plan = &p.plan;
  ask.probe = installation().probe;
  ask.weights = p.weights;
  ask.world = world();
  try {
    return summary_of(declare(ask, edge_of(p)), "");
  } catch (const Failure& f) {
    refuse_start(p, f);
  }
}

static std::string folders_again(const Planned& p) {
  std::set<fs::path> known;
  for (const std::string& folder : own_plugin_folders({})) known.insert(real(folder));
  std::string flags;
  for (const Value& folder : p.manifest.get("plugins", "path").as_list())
    if (!known.contains(real(folder.as_text()))) flags += " --plugin-path " + shell_word(folder.as_text());
  return flags;
}

std::string resume_command(const Planned& p, const std::string& dir) {
  return globals().name + " resume " + shell_word(dir) + folders_again(p) + ranks_flag_of(dir);
}

std::string command_to_go_on(const std::string& dir, const Planned* p) {
  const bool begins = was_never_saved(dir);
  return globals().name +
         (begins ? " train " + shell_word(dir + "/run.toml") + " --resume --set run.dir=" : " resume ") +
         shell_word(dir) + (p ? folders_again(*p) : "") + ranks_flag_of(dir);
}

}  // namespace mortise::cli
