// bin/mortise. What computes nothing is done here, without LibTorch; every other verb is a function of libmortise.so,
// which is loaded when it is needed.
#include <dlfcn.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/cli/command_line.hpp"
#include "core/cli/common.hpp"
#include "core/cli/launcher.hpp"
#include "core/cli/rank_process.hpp"
#include "core/cli/signals.hpp"
#include "core/cli/wait_policy.hpp"
#include "core/declare/declared.hpp"
#include "core/plugin/crash.hpp"

namespace mortise::cli {
namespace {

std::string names_of_light_verbs() {
  std::vector<std::string> names;
  for (const Verb& verb : verbs())
    if (verb.work) names.push_back("`" + verb.name + "`");
  return join(names, ", ");
}

// `plugin`: whose declaration needs LibTorch; "": the verb does.
[[noreturn]] void refuse(const std::string& verb, const std::string& plugin, const std::string& path,
                         const std::string& loader) {
  if (!std::filesystem::exists(path))
    throw Failure(trouble(kExitUnavailable, "no_library",
                          "`mortise " + verb + "` needs libmortise.so, which is not there", path,
                          "install all of Mortise: make install PREFIX=DIR"));
  Diagnostic d =
      trouble(kExitUnavailable, "no_libtorch",
              (plugin.empty() ? "`mortise " + verb + "`" : plugin) + " needs LibTorch, which cannot be loaded", loader);
  d.effect = "nothing was started; what needs no LibTorch: " + names_of_light_verbs();
  d.fixes = {"export LD_LIBRARY_PATH=DIR   where DIR holds libtorch_cpu.so of LibTorch 2.11",
             "pip install torch==2.11.0 has it in site-packages/torch/lib"};
  throw Failure(d);
}

int run_in_library(const std::string& verb, const std::string& plugin, int argc, char** argv) {
  // LibTorch's OpenMP threads spin for milliseconds before they sleep, which beside any other work costs whole time
  // slices (docs/adr/0008). Its library reads the variable when it is loaded. Who set it knows better.
  if (const char* const policy = policy_here(); *policy) {
    setenv("OMP_WAIT_POLICY", policy, /*overwrite=*/0);
    // Some tens of microseconds of spinning: as long as the loops of a step are apart.
    setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  }
  release_signals();  // the library guards the plugins that it loads itself
  const std::string path = installation().library;
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);  // never closed
  if (!library) refuse(verb, plugin, path, ::dlerror());
  // LibTorch would take apart at exit what it registered when it was loaded: a quarter of the processor time of a short
  // run, for nobody.
  leave_out_exit_handlers_so_far();
  const auto start = reinterpret_cast<int (*)(int, char**)>(::dlsym(library, "mortise_main"));
  if (!start) refuse(verb, plugin, path, ::dlerror());
  return start(argc, argv);
}

// What is wrong in names and in a manifest is known without LibTorch, whose loading takes longer than all of this.
void refuse_early(const Verb& verb, const Arguments& args) {
  const std::string word = args.positional.empty() ? "run.toml" : args.positional[0];
  if (verb.name == "resume" || verb.name == "sample") run_directory_at(word, verb.name);
  if (verb.name != "train") return;
  PlanSource source = source_named(word, "train");
  source.warnings = PlanSource::Warnings::kNone;
  make_planned(args, source);
}

}  // namespace
}  // namespace mortise::cli

int main(int argc, char** argv) {
  using namespace mortise::cli;
  ::prctl(PR_SET_NAME, program_invocation_short_name);  // ranks are begun from /proc/self/exe: `exe` in top
  return command_line(argc, argv, [&](const Verb& verb, const Arguments& args) {
    if (verb.name == "train" || verb.name == "resume") hold_signals();
    const int ranks = ranks_asked(verb, args);
    if (ranks > 1) plan_for(ranks);
    else share_processors(ranks_here(verb, args));
    refuse_early(verb, args);
    if (ranks > 1) return run_ranks(ranks, without_flag(globals().words, "--ranks"));
    if (!verb.work) return run_in_library(verb.name, "", argc, argv);
    try {
      return verb.work(args);
    } catch (const mortise::NeedsTensors& needs) {
      return run_in_library(verb.name, needs.plugin, argc, argv);
    }
  });
}
