#include "core/cli/common.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "core/base/text.hpp"
#include "core/loop/run.hpp"
#include "core/store/checkpoint.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {

const std::vector<Flag> kLayerFlags = {
    {"--set", "K=V", "set a key of something that is on; `default` as value returns to the default"},
    {"--use", "ID", "switch a plugin on"},
    {"--without", "ID", "switch a plugin off"},
    {"--include", "FILE", "a further layer above the file"},
    {"--plugin-path", "DIR", "a further folder with plugins"}};

std::string Arguments::last(const std::string& name, const std::string& otherwise) const {
  const auto found = flags.find(name);
  return found == flags.end() || found->second.empty() ? otherwise : found->second.back();
}

const std::vector<std::string>& Arguments::all(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto found = flags.find(name);
  return found == flags.end() ? none : found->second;
}

Globals& globals() {
  static Globals g;
  return g;
}

Installation installation() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  Installation i;
  i.prefix = prefix.string();
  if (fs::exists(prefix / "lib/mortise/plugins")) {  // installed
    i.plugins = (prefix / "lib/mortise/plugins").string();
    i.share = (prefix / "share/mortise").string();
  } else {  // the build tree lies in the source tree
    i.plugins = (prefix / "plugins").string();
    i.share = MORTISE_SOURCE_CONFIGS;
  }
  i.probe = (prefix / "bin/mortise-probe").string();
  return i;
}

ManifestRequest manifest_request(const Arguments& args, const std::string& file) {
  const Installation here = installation();
  ManifestRequest r;
  r.file = file;
  r.default_file = here.share + "/default.toml";
  r.shipped_dir = here.share;
  r.includes = args.all("--include");
  r.set = args.all("--set");
  r.use = args.all("--use");
  r.without = args.all("--without");
  return r;
}

std::map<std::string, PluginInfo> catalogue(const Arguments& args, const ManifestRequest* request,
                                            std::vector<std::string>& searched, Report& report) {
  std::vector<std::string> folders;
  if (request) folders = plugin_paths_of(*request);
  for (const auto& dir : args.all("--plugin-path")) folders.push_back(fs::absolute(dir).string());
  if (const char* path = std::getenv("MORTISE_PLUGIN_PATH"))
    for (const auto& dir : split(path, ':'))
      if (!dir.empty()) folders.push_back(dir);
  if (const char* home = std::getenv("HOME")) folders.push_back(std::string(home) + "/.local/share/mortise/plugins");
  folders.push_back(installation().plugins);
  searched.clear();
  std::set<fs::path> seen;
  for (const auto& dir : folders)  // one folder named twice does not hold its plugins twice
    if (std::error_code error; seen.insert(fs::weakly_canonical(dir, error)).second) searched.push_back(dir);
  return scan_plugins(searched, report);
}

namespace {

// A fact of plugin.toml says what a plugin cannot start without: [needs] file = "/dev/…".
std::string can_start(const PluginInfo& info) {
  const Value* file = fact_of(info, "needs", "file");
  if (!file || fs::exists(file->as_text())) return "";
  const Value* why = fact_of(info, "needs", "why");
  return why ? why->as_text() : "no " + file->as_text();
}

bool provides(const PluginSchema& plugin, const std::string& slot) {
  return std::ranges::find(plugin.provides, slot) != plugin.provides.end();
}

// The first name in backticks.
std::string named(const std::string& message) {
  const size_t from = message.find('`'), to = from == std::string::npos ? from : message.find('`', from + 1);
  return to == std::string::npos ? "" : message.substr(from + 1, to - from - 1);
}

// Keys that the schema knows and this version does nothing with.
void refuse_what_is_not_there(const Manifest& manifest, Report& report) {
  for (const auto& [table, key] : {std::pair("device", "memory_limit")}) {
    const Value& v = manifest.get(table, key);
    if (v.is_set())
      report.add(mistake("not_available", "`" + std::string(table) + "." + key + "` is not available in this version",
                         v.origin, "leave it out"));
  }
}

// What was found at the three stages, each thing once and without what only follows from another mistake. A folder with
// a broken plugin stops nobody who does not use it.
Report together(const Report& scanned, const Report& read, const Report& planned, const Manifest& manifest) {
  Report all;
  std::set<std::string> seen, mistyped;  // families
  const auto add = [&](Diagnostic d) {
    if (globals().strict && d.level == Level::kWarning) d.level = Level::kError;
    if (seen.insert(d.code + d.message + (d.positions.empty() ? "" : d.positions[0].text())).second)
      all.add(std::move(d));
  };
  for (Diagnostic d : scanned.all()) {
    const bool used = std::ranges::any_of(manifest.plugins,
                                          [&](const PluginTable& t) { return t.enabled && t.schema->id == d.plugin; });
    if (!used && !read.has_errors()) {
      d.level = Level::kWarning;
      if (d.effect.empty()) d.effect = "it was left out; this run does not use it";
    }
    add(std::move(d));
  }
  for (const Diagnostic& d : read.all()) {
    if (d.code == "unknown_table")
      for (const std::string& id :
           {named(d.message), d.fixes.empty() ? "" : d.fixes[0].substr(d.fixes[0].starts_with("["))})
        mistyped.insert(id.substr(0, id.find('.')));
    const auto refuses_it = [&](const Diagnostic& s) {
      return s.level == Level::kError && !s.plugin.empty() && s.plugin == d.plugin;
    };
    if (std::ranges::any_of(scanned.all(), refuses_it)) continue;  // that nobody is called so only follows
    add(d);
  }
  for (const Diagnostic& d : planned.all())
    if (d.code != "nothing_provides" || !mistyped.contains(named(d.message))) add(d);
  return all;
}

}  // namespace

std::unique_ptr<Planned> make_planned(const Arguments& args, const std::string& file, const std::string& slot,
                                      bool weights) {
  auto p = std::make_unique<Planned>();
  Report scanned, read, planned;
  p->request = manifest_request(args, file);
  p->catalogue = catalogue(args, &p->request, p->request.searched, scanned);
  for (const auto& [id, info] : p->catalogue) p->schemas[id] = info.schema;
  p->request.catalogue = &p->schemas;
  p->manifest = read_manifest(p->request, read);
  const auto on = [&](const PluginTable& t) { return t.enabled && provides(*t.schema, slot); };
  const auto brings = std::ranges::find_if(p->schemas, [&](const auto& each) { return provides(each.second, slot); });
  if (!slot.empty() && !read.has_errors() && brings != p->schemas.end() &&
      std::ranges::none_of(p->manifest.plugins, on)) {
    p->request.use.push_back(brings->first);
    read = {};
    p->manifest = read_manifest(p->request, read);
  }
  // Folders named on the command line belong to the run, so that its run.toml finds its plugins again.
  if (auto table = p->manifest.tables.find("plugins"); table != p->manifest.tables.end() && args.has("--plugin-path")) {
    Value& path = table->second["path"];
    std::vector<Value> folders = path.as_list();
    for (const auto& dir : args.all("--plugin-path"))
      folders.push_back({fs::absolute(dir).lexically_normal().string(), {}});
    path = {std::move(folders), {"command line: --plugin-path", 0, 0, "plugins.path"}};
  }
  // A file that could not be read leaves no tables, and nothing to plan.
  if (!p->manifest.tables.empty()) {
    if (weights) p->weights = weights_path(p->manifest.get("model", "weights"), planned);
    if (!p->weights.empty() && !read.has_errors()) {
      Report quiet;  // what it finds is found again
      const Plan plan = make_plan(p->manifest, p->catalogue, can_start, quiet);
      if (const auto& claims = plan.at[kModel].providers; !claims.empty())
        take_architecture(p->weights, plan.members[static_cast<size_t>(claims.back().member)].info->schema.id,
                          p->catalogue, p->manifest, planned);
    }
    refuse_what_is_not_there(p->manifest, planned);
    p->plan = make_plan(p->manifest, p->catalogue, can_start, planned);
  }
  const Report all = together(scanned, read, planned, p->manifest);
  if (all.has_errors()) {
    say(all, "nothing was started.");
    throw Failed{all.exit_code()};
  }
  if (!globals().quiet) say(all, "");
  return p;
}

std::unique_ptr<Run> make_run(const Planned& p, RunRequest ask) {
  ask.manifest = &p.manifest;
  ask.plan = &p.plan;
  ask.probe = installation().probe;
  if (ask.checkpoint.empty() && ask.weights.empty()) ask.weights = p.weights;
  ask.warn = [](const Diagnostic& d) { say(d); };
  try {
    return std::make_unique<Run>(std::move(ask));
  } catch (const Failure& f) {
    Diagnostic d = f.diagnostic;
    const bool of_weights = !p.weights.empty() && (d.at.starts_with(p.weights) || d.code == "matches_nothing");
    if (d.positions.empty() && of_weights)
      d.positions = {p.manifest.get("model", d.code == "matches_nothing" ? "new" : "weights").origin};
    Report one;
    one.add(d);
    say(one, "nothing was started.");
    throw Failed{f.diagnostic.exit};
  }
}

void must_hold_a_run(const std::string& dir, const std::string& verb) {
  if (fs::exists(fs::path(dir) / "run.toml")) return;
  throw Failure(trouble(kExitData, "no_run", dir + " is no run directory: it has no run.toml", "",
                        "mortise " + verb + " runs/latest"));
}

Verified checkpoint_of(const std::string& dir, const std::string& which) {
  const std::string root = dir + "/checkpoints";
  const auto refuse = [&](const std::string& message, const std::string& fix) {
    throw Failure(trouble(kExitData, "no_checkpoint", message, "", fix));
  };
  const std::vector<Found> all = checkpoints_in(root);
  if (all.empty()) refuse(dir + " has no checkpoint yet", "wait for the first one; [checkpoint] every says when");
  std::vector<std::string> steps;
  for (const Found& f : all) steps.push_back(std::to_string(f.step));
  std::error_code error;
  std::string wanted = which;
  if (which.empty() || which == "best") {
    const std::string link = fs::read_symlink(root + "/best", error).string();
    if (!error && link.starts_with("step-")) wanted = link.substr(5);
    else if (which == "best") refuse(dir + " has no best checkpoint", "[checkpoint] best = \"eval.loss\" keeps one");
  }
  for (const Found& f : all)
    if (std::to_string(f.step) == wanted) return {f, verify_checkpoint(f)};
  if (!which.empty() && which != "best" && which != "latest")
    refuse(dir + " has no checkpoint of step " + which, "--checkpoint " + either(steps));
  auto newest = newest_checkpoint(root, [](const Diagnostic& d) { say(d); });
  if (!newest) refuse("no checkpoint of " + dir + " is what was saved", "mortise checkpoint verify " + dir);
  return *std::move(newest);
}

void say(const Report& report, std::string_view closing) {
  if (globals().json) report.print_json(std::cerr);
  else report.print(std::cerr, globals().colour, closing);
}

void say(const Diagnostic& d) {
  if (globals().json) print_json(std::cerr, d);
  else print(std::cerr, d, globals().colour);
}

}  // namespace mortise::cli
