// What the verbs share: their arguments, where the installation lies, and the way from a manifest to a plan.
#pragma once
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/plugin_info.hpp"
#include "core/store/checkpoint.hpp"

namespace mortise {
class Run;
struct RunRequest;
struct Summary;
}  // namespace mortise

namespace mortise::cli {

// One flag of a verb.
struct Flag {
  std::string name;   // "--set"
  std::string value;  // what follows, for --help ("K=V"); "" for a switch
  std::string doc;
};

// The words after the verb, checked against its flags.
struct Arguments {
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>> flags;
  bool has(const std::string& name) const { return flags.count(name) > 0; }
  std::string last(const std::string& name, const std::string& otherwise = "") const;
  const std::vector<std::string>& all(const std::string& name) const;
};

struct Verb {
  std::string name, usage, doc, example;
  std::vector<Flag> flags;
  size_t most_positional = 1;
  int (*run)(const Arguments&);
};
const std::vector<Verb>& verbs();

// Global flags as they were given.
struct Globals {
  bool quiet = false, verbose = false, json = false, strict = false;
  bool colour = false;
  std::string command;  // as a shell would take it again
};
Globals& globals();

extern const std::vector<Flag> kLayerFlags;  // --set --use --without --include --plugin-path

// Folders of this installation, in the build tree or installed.
struct Installation {
  std::string prefix, plugins, share, probe;
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
// If nothing that is on provides `slot`, the first plugin that does is switched on. Without `weights`, [model] weights
// is not looked at: the run has weights of its own by now. Throws Failed.
std::unique_ptr<Planned> make_planned(const Arguments& args, const std::string& file, const std::string& slot = "",
                                      bool weights = true);
// The file or folder that [model] weights means: a run directory's checkpoint, a folder of Hugging Face's, a file.
// Nothing is downloaded.
std::string weights_path(const Value& stated, Report& report);
// What the config.json beside the weights says of the plugin `model` goes into the manifest: above the default, never
// against what is stated.
void take_architecture(const std::string& weights, const std::string& model,
                       const std::map<std::string, PluginInfo>& catalogue, Manifest& manifest, Report& report);
// Plugins loaded and the model declared, without LibTorch: what `plan` says of a run. Throws Failed.
Summary declared_summary(const Planned& p);
// The same, and allocated. The planned fills the request's
// other fields. Throws Failed.
std::unique_ptr<Run> make_run(const Planned& p, RunRequest ask);
// Refuses a folder that holds no run. Throws Failure.
void must_hold_a_run(const std::string& dir, const std::string& verb);
// A run's checkpoint: "best", "latest" or a step; by default the best, else the newest that verifies. Throws Failure.
Verified checkpoint_of(const std::string& dir, const std::string& which = "");
std::map<std::string, PluginInfo> catalogue(const Arguments& args, const ManifestRequest* request,
                                            std::vector<std::string>& searched, Report& report);
ManifestRequest manifest_request(const Arguments& args, const std::string& file);

// Prints to stderr, as text or as JSON.
void say(const Report& report, std::string_view closing);
void say(const Diagnostic& d);

// What `mortise plan` says, and plan.txt of a run directory.
void print_plan(std::ostream& out, const Planned& p, const Summary& s);

int train(const Arguments&);
int resume(const Arguments&);
int checkpoint(const Arguments&);
int plan(const Arguments&);
int points(const Arguments&);
int explain(const Arguments&);
int sample(const Arguments&);
int eval(const Arguments&);
int export_model(const Arguments&);
int plugin(const Arguments&);
int help(const Arguments&);

}  // namespace mortise::cli
