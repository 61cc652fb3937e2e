// What the verbs share: their arguments, where the installation lies, and the way from a manifest to a plan.
#pragma once
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/base/world.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/plugin_info.hpp"
#include "core/store/checkpoint.hpp"

namespace mortise {
class Edge;
class PointTable;
class Run;
struct RunRequest;
struct Summary;
}  // namespace mortise
struct mortise_program;

namespace mortise::cli {

// One flag of a verb.
struct Flag {
  std::string name;   // "--set"
  std::string value;  // what follows, for --help ("K=V"); "" for a switch
  std::string doc;
  bool repeats = false;  // it may be given several times
};

// The words after the verb, checked against its flags.
struct Arguments {
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>> flags;
  bool has(const std::string& name) const { return flags.count(name) > 0; }
  std::string last(const std::string& name, const std::string& otherwise = "") const;
  const std::vector<std::string>& all(const std::string& name) const;
};

// What a verb does; the exit code. Throws Failure, Failed, or NeedsTensors if it is no work for a light program.
using Work = int (*)(const Arguments&);

struct Verb {
  std::string name;
  Work work = nullptr;  // NULL in the program for those that compute: they are in libmortise.so (docs/adr/0014)
  std::string usage, doc, example;
  std::vector<Flag> flags;
  size_t most_positional = 1;
  bool takes_layers = false;  // layer_flags() too
};
const std::vector<Verb>& verbs();
const std::vector<Flag>& layer_flags();   // --set --use --without --include --plugin-path
const std::vector<Flag>& global_flags();  // of every verb

// Global flags as they were given.
struct Globals {
  bool quiet = false, json = false, strict = false;
  bool colour = false;
  std::string command;                       // as a shell would take it again
  std::vector<std::string> words;            // the same, word by word
  std::string name = "mortise";              // of the program, as it was called
  const mortise_program* program = nullptr;  // who runs the loop itself, if anybody does
};
Globals& globals();

// Folders of this installation, in the build tree or installed.
struct Installation {
  std::string prefix, plugins, share, probe, library;
};
Installation installation();

// A manifest read against the plugins that can be found, and the plan made of it.
struct Planned {
  std::map<std::string, PluginInfo> catalogue;
  std::map<std::string, PluginSchema> schemas;
  ManifestRequest request;
  Manifest manifest;
  Plan plan;
  std::string weights;  // the file or folder that [model] weights means; "": random from run.seed
};
// Every mistake has been printed.
struct Failed {
  int exit;
};
// What a plan is made of.
struct PlanSource {
  std::string file;                       // a manifest
  std::string dir;                        // the run directory whose run.toml it is; "": it is nobody's
  std::string slot = {};                  // if nothing provides it, the plugin that a layer names for it is switched on
  bool weights = true;                    // false: [model] weights is not looked at, the run has its own by now
  std::vector<std::string> folders = {};  // of plugins that the person named elsewhere
  // kNew: not those about a run's own run.toml alone, which were said when it was written.
  enum class Warnings { kAll, kNew, kNone } warnings = Warnings::kAll;
};
PlanSource source_of_run(const std::string& dir);
// Of somebody else's directory nothing is read through a link, and nothing without an end.
constexpr size_t kMostManifestBytes = size_t{1} << 20;
// A manifest or a run directory, as a person names it to a verb. Throws Failure of any other folder.
PlanSource source_named(const std::string& word, const std::string& verb);
// Throws Failed.
std::unique_ptr<Planned> make_planned(const Arguments& args, const PlanSource& source);
// A plan opens no device. Before a run that nobody asked to be on this very one, the device is opened: one that cannot
// run here gives its place to its `fallback`, with a warning, in this plan and in all that this process makes. Throws
// Failed.
void settle_device(Planned& p);
// The file or folder that [model] weights means: a run directory's checkpoint, a folder of Hugging Face's, a file.
// Nothing is downloaded.
std::string weights_path(const Value& stated, Report& report);
// What the config.json beside the weights says of the plugin `model` goes into the manifest: above the default, never
// against what is stated.
void take_architecture(const std::string& weights, const std::string& model,
                       const std::map<std::string, PluginInfo>& catalogue, Manifest& manifest, Report& report);
// A tokenizer without a file of its own has that of the weights, if there is one; that of a run whose file is gone has
// the one that was saved with the model, with a warning.
void take_tokenizer(const std::string& weights, const Plan& plan, Manifest& manifest);
// Names of classes that the data does not state are those of the weights, in their order.
void take_classes(const std::string& weights, const Plan& plan, Manifest& manifest, Report& report);
void take_own_tokenizer(const std::string& dir, const Plan& plan, Manifest& manifest, Report& report);
std::unique_ptr<Edge> make_host(const PointTable& points, uint64_t seed);  // over LibTorch: in libmortise.so only
// Plugins loaded and the model declared: what `plan` says of a run. Throws Failed, or NeedsTensors.
Summary declared_summary(const Planned& p);
// What went wrong on the way from a plan to a run is told with the place in the manifest that named the weights, if it
// is theirs. Throws Failed.
[[noreturn]] void refuse_start(const Planned& p, const Failure& failure);
// Plugins loaded, the model declared and allocated. The planned fills the request's other fields. Throws Failed.
std::unique_ptr<Run> make_run(const Planned& p, RunRequest ask);
// The run directory that a word means, by its real name: not a link (runs/latest), without a slash at its end, never
// ".". Refuses a folder that holds no run. Throws Failure.
std::string run_directory_at(const std::string& word, const std::string& verb);
// A run's checkpoint: "best", "latest" or a step; by default the best, else the newest that verifies. Throws Failure.
Verified checkpoint_of(const std::string& dir, const std::string& which = "");
// Calls `find`; of a checkpoint that is damaged it is said that another can be taken: `flag` latest.
Verified or_the_newest(const std::string& which, const std::string& flag, const std::function<Verified()>& find);
// Calls `use` with that checkpoint, as CheckpointFolder::with() does.
void with_checkpoint(const std::string& dir, const std::string& which, const std::function<void(const Verified&)>& use);
// "mortise resume DIR", with the folders of plugins that it will have to be told again: of a run that will have saved.
std::string resume_command(const Planned& p, const std::string& dir);
// The same of a run as it is now; where nothing was ever saved, "mortise train DIR/run.toml --resume", which begins it
// again. `p`: its plan, if there is one.
std::string command_to_go_on(const std::string& dir, const Planned* p = nullptr);
// Whether a plugin can start on this machine, without a line of its code: "" or why not. `first_device`: the number of
// the first rank's.
std::string can_start(const PluginInfo& info, int64_t first_device = 0);
// make_plan() of what can.
Plan plan_here(const Manifest& manifest, const std::map<std::string, PluginInfo>& catalogue, Report& report);
// The ranks that this process is one of, by its environment. Throws Failure.
const World& world();
// Throws Failure if a launcher has started several of this process: `why` one does it, and what they would have done.
void must_be_alone(const std::string& why, const std::string& effect);
// " --ranks N", which a command that goes on with this run has to say; "" where ranks are on several hosts, or there is
// one.
std::string ranks_flag();
std::string ranks_flag_of(const std::string& dir);  // as many as the run in it had
// From here on `world` is rank 0 of so many on this machine, as `--ranks` starts them: for a plan that starts none.
void plan_for(int ranks);
std::map<std::string, PluginInfo> catalogue(const Arguments& args, const ManifestRequest* request,
                                            std::vector<std::string>& searched, Report& report);
// Of every plugin that can be read; what is wrong with the others is said where they are used.
std::map<std::string, PluginSchema> schemas_of_plugins(const Arguments& args);
ManifestRequest manifest_request(const Arguments& args, const std::string& file);

// Prints to stderr, as text or as JSON.
void say(const Report& report, std::string_view closing);
void say(const Diagnostic& d);
// Prints warnings; with --strict they are errors. Throws Failed.
void say_warnings(std::vector<Diagnostic> warnings);

// What `mortise plan` says, and plan.txt of a run directory; `width` as of print_structure.
void print_plan(std::ostream& out, const Planned& p, const Summary& s, size_t width = 0);
void print_json_plan(const Planned& p, const Summary* s);  // NULL: the structure alone
PlanSource source_of_plan(const Arguments& args);          // ./run.toml if nothing is named

}  // namespace mortise::cli
