// The command line: which verb, which flags, and what an exit means.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "core/base/progress.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/loop/run.hpp"
#include "core/plugin/crash.hpp"

namespace mortise::cli {
namespace {

std::vector<Flag> with(const std::vector<Flag>& a, const std::vector<Flag>& b) {
  std::vector<Flag> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

const std::vector<Flag> kGlobalFlags = {{"-q", "", "errors only"},
                                        {"-v", "", "more"},
                                        {"--json", "", "for machines"},
                                        {"--color", "auto|always|never", "on a terminal by default"},
                                        {"--strict", "", "warnings are errors"},
                                        {"-h", "", "this, as --help"},
                                        {"--help", "", ""}};

[[noreturn]] void refuse(const std::string& code, const std::string& message, std::vector<std::string> fixes) {
  Diagnostic d = mistake(code, message);
  d.fixes = std::move(fixes);
  throw Failure(d);
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& v : verbs()) {
    if (v.name == name) return v;
    names.push_back(v.name);
  }
  if (name[0] == '-')
    refuse("unknown_verb", "`" + name + "` stands where a verb is expected", {"mortise VERB " + name});
  const std::string near = nearest(name, names);
  refuse("unknown_verb", "no verb `" + name + "`", {near.empty() ? "mortise help" : "mortise " + near});
}

const Flag& find_flag(const Verb& verb, const std::string& name) {
  static std::vector<Flag> all;
  all = with(verb.flags, kGlobalFlags);
  std::vector<std::string> names;
  for (const auto& f : all) {
    if (f.name == name) return f;
    names.push_back(f.name);
  }
  const std::string near = nearest(name, names);
  refuse("unknown_flag", "`mortise " + verb.name + "` has no flag `" + name + "`",
         {near.empty() ? "mortise " + verb.name + " --help" : near});
}

void take_global(const std::string& name, const std::string& value) {
  Globals& g = globals();
  if (name == "-q" || name == "--json") progress_screen().out = nullptr;
  if (name == "-q") g.quiet = true;
  if (name == "-v") g.verbose = true;
  if (name == "--json") g.json = true;
  if (name == "--strict") g.strict = true;
  if (name == "--color") {
    if (value != "auto" && value != "always" && value != "never")
      refuse("wrong_type", "--color is auto, always or never, this is `" + value + "`", {"--color auto"});
    if (value == "auto") return;
    g.colour = value == "always";
    // Plugins that print have no other way to know.
    setenv(g.colour ? "CLICOLOR_FORCE" : "NO_COLOR", "1", /*overwrite=*/1);
    unsetenv(g.colour ? "NO_COLOR" : "CLICOLOR_FORCE");
  }
}

Arguments parse(const Verb& verb, const std::vector<std::string>& words) {
  Arguments a;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i], value;
    if (name.size() < 2 || name[0] != '-') {
      a.positional.push_back(name);
      continue;
    }
    const size_t equals = name.rfind("--", 0) == 0 ? name.find('=') : std::string::npos;
    const bool joined = equals != std::string::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const Flag& flag = find_flag(verb, name);
    if (!flag.value.empty() && !joined) {
      if (i + 1 == words.size())
        refuse("missing_value", "`" + name + "` needs a value: " + name + " " + flag.value,
               {"mortise " + verb.name + " --help"});
      value = words[++i];
    }
    a.flags[name].push_back(value);
    take_global(name, value);
  }
  if (a.positional.size() > verb.most_positional)
    refuse("too_many_words",
           "`mortise " + verb.name + "` takes " + verb.usage + "; `" + a.positional[verb.most_positional] +
               "` is one word too many",
           {"mortise " + verb.name + " --help"});
  return a;
}

void print_verb_help(const Verb& v) {
  std::cout << "mortise " << v.name << " " << v.usage << "\n  " << v.doc << "\n\n";
  for (const auto& f : with(v.flags, kGlobalFlags)) {
    if (f.doc.empty()) continue;
    const std::string left = f.name + (f.value.empty() ? "" : " " + f.value);
    std::cout << "  " << left << std::string(left.size() < 26 ? 26 - left.size() : 1, ' ') << f.doc << "\n";
  }
  std::cout << "\n  " << v.example << "\n";
}

void print_help() {
  std::cout << "mortise: a training runtime; every technique is a plugin, switched on by a table in TOML\n\n";
  for (const auto& v : verbs()) {
    const std::string left = v.name + " " + v.usage;
    std::cout << "  " << left << std::string(left.size() < 34 ? 34 - left.size() : 1, ' ') << v.doc << "\n";
  }
  std::cout << "\nmortise help VERB says more; --version and --prefix say which one this is, and where.\n"
               "Exit codes: 0 done, 64 command line or manifest, 65 data, 69 something is not there, 70 our bug, 71 a "
               "plugin, 73 the output exists,\n"
               "74 reading or writing, 75 stopped, to be resumed, 76 a guard stopped it, 130 interrupted.\n";
}

int run_main(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "-h" || words[0] == "--help") {
    print_help();
    return words.empty() ? kExitUsage : kExitOk;
  }
  if (words[0] == "--version") {
    std::cout << "mortise " << MORTISE_VERSION << ", ABI 0.1\n";
    return kExitOk;
  }
  if (words[0] == "--prefix") {
    std::cout << installation().prefix << "\n";
    return kExitOk;
  }
  const Verb& verb = find_verb(words[0]);
  const Arguments args = parse(verb, {words.begin() + 1, words.end()});
  if (args.has("-h") || args.has("--help")) {
    print_verb_help(verb);
    return kExitOk;
  }
  return verb.run(args);
}

// A variable that is empty says nothing (no-color.org); 0 forces nothing (bixense.com/clicolors).
bool colour_by_environment() {
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (!variable("NO_COLOR").empty()) return false;
  if (const std::string_view force = variable("CLICOLOR_FORCE"); !force.empty() && force != "0") return true;
  return stderr_is_redrawn();
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"train", "[RUN]", "train what the manifest says (./run.toml if left out)",
       "mortise train configs/quickstart.toml --set optimizer.lr=3e-4",
       with({{"--resume", "",
              "go on with this run if it exists and is unfinished, begin if not; exit 0 if it is finished"}},
            kLayerFlags),
       1, train},
      {"resume", "DIR", "go on with a run, from its newest checkpoint",
       "mortise resume runs/gpt2 --set optimizer.lr=3e-4",
       with({{"--from", "STEP", "from this checkpoint; later ones are set aside"}}, kLayerFlags), 1, resume},
      {"checkpoint",
       "list|verify DIR",
       "what a run has saved, and whether it still is what was saved",
       "mortise checkpoint verify runs/gpt2",
       {},
       2,
       checkpoint},
      {"plan", "[RUN]", "who does what, in what order, how much memory; runs nothing",
       "mortise plan run.toml --why block",
       with({{"--why", "POINT", "the order at one point, with reasons"},
             {"--keys", "", "every key, its value and where it is from"},
             {"--weights", "", "every parameter by name"},
             {"--layer", "NAME", "print a layer; `default` is the lowest"},
             {"--static", "", "from manifests alone: no plugin is loaded"}},
            kLayerFlags),
       1, plan},
      {"points",
       "",
       "the table of points: where a plugin can attach",
       "mortise points --json",
       {{"--plugin-path", "DIR", "a further folder with plugins"}, {"--markdown", "", "as the page of the guide"}},
       0,
       points},
      {"sample", "DIR", "text from the model of a run directory",
       "mortise sample runs/quickstart --prompt \"The core\" --tokens 100",
       with({{"--prompt", "TEXT", "what to go on from; else standard input, else the plugin's own"},
             {"--tokens", "N", "how many"},
             {"--temperature", "T", "0: always the likeliest"},
             {"--top-k", "K", "of the K likeliest; 0: of all"},
             {"--seed", "N", "of the draws; 0"},
             {"--checkpoint", "best|latest|STEP", "which; the best, else the newest"}},
            kLayerFlags),
       1, sample},
      {"eval", "DIR|RUN", "measure a checkpoint of a run, or the weights that a manifest names",
       "mortise eval runs/reviews --data test.txt",
       with({{"--data", "PATH", "on these files, not on the run's own validation data"},
             {"--split", "validation|test", "which part of the data"},
             {"--checkpoint", "best|latest|STEP", "which; the best, else the newest"}},
            kLayerFlags),
       1, eval},
      {"export",
       "DIR",
       "a checkpoint as a folder that Hugging Face's libraries read",
       "mortise export runs/reviews -o reviews-hf",
       {{"-o", "OUT", "the folder to write; it must not exist"},
        {"--checkpoint", "best|latest|STEP", "which; the best, else the newest"},
        {"--dtype", "fp32|bf16|fp16", "of the weights; as they are"},  // MORTISE_F32, MORTISE_BF16, MORTISE_F16
        {"--to", "huggingface", "the form; there is one"}},
       1,
       export_model},
      {"plugin",
       "list [FAMILY] | info ID",
       "what is installed, and what one of them is",
       "mortise plugin info FAMILY.NAME",
       {{"--plugin-path", "DIR", "a further folder with plugins"}},
       2,
       plugin},
      {"help", "[VERB]", "this, or more about one verb", "mortise help train", {}, 1, help},
  };
  return all;
}

int help(const Arguments& args) {
  if (args.positional.empty()) print_help();
  else print_verb_help(find_verb(args.positional[0]));
  return kExitOk;
}

}  // namespace mortise::cli

int main(int argc, char** argv) {
  using namespace mortise;
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error of writing, not a death
  cli::globals().colour = cli::colour_by_environment();
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json")
      cli::globals().json = true;  // also for what is wrong with the flags before it
    cli::globals().command += (i ? " " : "") + shell_word(argv[i]);
  }
  set_guard_output([](const Diagnostic& d) { cli::say(d); }, cli::globals().json);
  int exit = kExitOk;
  try {
    exit = cli::run_main({argv + 1, argv + argc});
  } catch (const cli::Failed& f) {
    exit = f.exit;
  } catch (const Failure& f) {
    cli::say(f.diagnostic);
    exit = f.diagnostic.exit;
  } catch (const FormatError& e) {
    cli::say(diagnostic_of(e));
    exit = kExitData;
  } catch (const std::exception& e) {
    exit = kExitBug;
    cli::say(trouble(exit, "internal", e.what(), "",
                     "this is a mistake of ours: report it with the command line and the manifest"));
  }
  std::cout.flush();
  if (!std::cout && exit == kExitOk) exit = kExitIo;
  return exit;
}
