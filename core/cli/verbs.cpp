// The verbs: what each is called, does, takes and is for. A verb is one function, in a file of its own.
#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"

namespace mortise::cli {

int bench(const Arguments&);
int checkpoint(const Arguments&);
int explain(const Arguments&);
int export_model(const Arguments&);
int init(const Arguments&);
int keys(const Arguments&);
int plan(const Arguments&);
int plugin(const Arguments&);
int points(const Arguments&);
// Those that compute are linked into libmortise.so alone. `weak`: in the program, which links no LibTorch, they are
// NULL.
#define MORTISE_COMPUTES [[gnu::weak, gnu::visibility("hidden")]]
MORTISE_COMPUTES int eval(const Arguments&);
MORTISE_COMPUTES int resume(const Arguments&);
MORTISE_COMPUTES int sample(const Arguments&);
MORTISE_COMPUTES int show_data(const Arguments&);
MORTISE_COMPUTES int train(const Arguments&);
#undef MORTISE_COMPUTES

const std::vector<Flag>& layer_flags() {
  static const std::vector<Flag> all = {
      {"--set", "K=V", "set a key of something that is on; `default` as value returns to the default", true},
      {"--use", "ID", "switch a plugin on", true},
      {"--without", "ID", "switch a plugin off", true},
      {"--include", "FILE", "a further layer above the file", true},
      {"--plugin-path", "DIR", "a further folder with plugins", true}};
  return all;
}

const std::vector<Flag>& global_flags() {
  static const std::vector<Flag> all = {{"-q", "", "errors only"},
                                        {"--json", "", "for machines"},
                                        {"--color", "auto|always|never", "on a terminal by default"},
                                        {"--strict", "", "warnings are errors; a line that a plugin logs is none"},
                                        {"-h", "", "help on the verb, as --help"},
                                        {"--help", "", ""}};
  return all;
}

const std::vector<Verb>& verbs() {
  static const Flag ranks = {"--ranks", "N|all", "start N processes on this machine that train together"},
                    parts = {"--ranks", "N|all", "start N processes on this machine that each measure a part"};
  static const std::vector<Verb> all = {
      {"init",
       init,
       "[NAME]",
       "write a shipped manifest to begin with; without a name: which there are",
       "mortise init --list",
       {{"--list", "", "which there are"}, {"-o", "FILE", "NAME.toml by default; - is standard output"}},
       1},
      {"data",
       show_data,
       "[RUN]",
       "what the data is: samples, classes, lengths, the first one as text",
       "mortise data reviews.toml",
       {},
       1,
       true},
      {"plan",
       plan,
       "[RUN]",
       "who does what, in what order, how much memory; runs nothing",
       "mortise plan run.toml --why block",
       {{"--why", "POINT", "the order at one point, with reasons"},
        {"--keys", "", "every key, its value and where it is from"},
        {"--weights", "", "every parameter by name"},
        {"--layer", "NAME", "print a layer; `default` is the lowest"},
        {"--ranks", "N|all", "of N ranks on this machine; starts none"},
        {"--static", "", "from manifests alone: no plugin is loaded, and LibTorch need not be there"}},
       1,
       true},
      {"train",
       train,
       "[RUN]",
       "train what the manifest says (./run.toml if left out)",
       "mortise train configs/quickstart.toml --set optimizer.lr=3e-4",
       {{"--resume", "", "go on with this run if it exists and is unfinished, begin if not; exit 0 if it is finished"},
        ranks},
       1,
       true},
      {"resume",
       resume,
       "DIR",
       "go on with a run, from its newest checkpoint",
       "mortise resume runs/gpt2 --set optimizer.lr=3e-4",
       {{"--from", "best|latest|STEP", "from this checkpoint; later ones are set aside"}, ranks},
       1,
       true},
      {"sample",
       sample,
       "DIR",
       "text from the model of a run directory",
       "mortise sample runs/quickstart --prompt \"The core\" --tokens 100",
       {{"--prompt", "TEXT", "what to go on from, once a text; else standard input, else the plugin's own", true},
        {"--tokenizer", "FOLDER", "of a run on ids: with a tokenizer.json; or that file, or what a plugin is called"},
        {"--prompt-file", "FILE", "a prompt a line, as standard input has them"},
        {"--tokens", "N", "how many"},
        {"--temperature", "T", "0: always the likeliest"},
        {"--top-k", "K", "of the K likeliest; 0: of all"},
        {"--top-p", "P", "of the fewest of these whose probabilities add up to P; 1: of all"},
        {"--stop", "TEXT", "what is new ends before it; of several, before the first", true},
        {"--seed", "N", "of the draws; 0"},
        {"--checkpoint", "best|latest|STEP", "which; the best, else the newest"}},
       1,
       true},
      {"eval",
       eval,
       "DIR|RUN",
       "measure a checkpoint of a run, or the weights that a manifest names",
       "mortise eval runs/reviews --data test.txt",
       {{"--data", "PATH", "on these files, not on the run's own validation data"},
        {"--split", "NAME", "which part of the data, as its plugin calls it; validation"},
        {"--checkpoint", "best|latest|STEP", "which; the best, else the newest"},
        parts},
       1,
       true},
      {"export",
       export_model,
       "DIR",
       "a checkpoint as a folder that Hugging Face's libraries read",
       "mortise export runs/reviews -o reviews-hf",
       {{"-o", "OUT", "the folder to write; it must not exist"},
        {"--checkpoint", "best|latest|STEP", "which; the best, else the newest"},
        {"--dtype", join(dtype_names(), "|"), "of the weights; as they are"},
        {"--weights", "PLUGIN/STATE", "what a plugin keeps beside the weights, in their place"},
        {"--to", "huggingface|peft", "the whole model, or what an adapter added to it, for PEFT; huggingface"}},
       1},
      {"checkpoint",
       checkpoint,
       "list|verify DIR",
       "what a run has saved, and whether it still is what was saved",
       "mortise checkpoint verify runs/gpt2",
       {},
       2},
      {"bench",
       bench,
       "[RUN|MATRIX]",
       "train rows of settings, each in a fresh process; a table and a plot of speed against memory",
       "mortise bench configs/bench/quick.toml",
       {{"-o", "DIR", "where the table, the report and the rows go; runs/NAME of the file"},
        {"--steps", "N", "of each row, whatever the manifests say"},
        {"--anew", "", "also the rows that were measured before"}},
       1,
       true},
      {"plugin",
       plugin,
       "list [FAMILY] | info ID",
       "what is installed, and what one of them is",
       "mortise plugin info FAMILY.NAME",
       {{"--plugin-path", "DIR", "a further folder with plugins"}},
       2},
      {"explain",
       explain,
       "[CODE|KEY]",
       "what an error, an exit code, a key (TABLE.KEY) or a table means",
       "mortise explain unknown_key",
       {{"--markdown", "", "as the page of the documents"}},
       1},
      {"keys",
       keys,
       "",
       "the table of keys: what may stand in a manifest",
       "mortise keys --json",
       {{"--plugin-path", "DIR", "a further folder with plugins"}, {"--markdown", "", "as the page of the documents"}},
       0},
      {"points",
       points,
       "",
       "the table of points: where a plugin can attach",
       "mortise points --json",
       {{"--plugin-path", "DIR", "a further folder with plugins"}, {"--markdown", "", "as the page of the guide"}},
       0},
      {"help",
       nullptr,
       "[VERB]",
       "this, or more about one verb; `flags`: those that many verbs take",
       "mortise help train",
       {},
       1},
  };
  return all;
}

}  // namespace mortise::cli
