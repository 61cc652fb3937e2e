// libmortise.so: the verbs that compute, with the engine and rooms of its own. It shares nothing with the program that
// loads it but argc and argv, and what a program that runs the loop itself brings.
#include <algorithm>
#include <stdexcept>

#include "core/base/text.hpp"
#include "core/cli/command_line.hpp"
#include "core/cli/launcher.hpp"
#include "mortise/program.h"

namespace mortise::cli {
namespace {

int run(const Verb& verb, const Arguments& args) {
  if (!verb.work) throw std::logic_error("`" + verb.name + "` is in no file of libmortise.so");
  // bin/mortise has seen to this before it opened the library; a program that runs the loop itself comes here first.
  if (const int ranks = ranks_asked(verb, args); ranks > 1)
    return run_ranks(ranks, without_flag(globals().words, "--ranks"));
  return verb.work(args);
}

// A program is called as `mortise` is, or, to train its own manifest, with the flags of `train` alone.
std::vector<char*> words_of(int argc, char** argv, const mortise_program& program) {
  static std::string train = "train", manifest = program.manifest ? program.manifest : "run.toml";
  std::vector<char*> words(argv, argv + argc);
  const std::string first = argc > 1 ? argv[1] : "-";
  if (first == "help" || std::ranges::find(verbs(), first, &Verb::name) != verbs().end()) return words;
  words.insert(words.begin() + 1, train.data());
  if (first.starts_with("-")) words.insert(words.begin() + 2, manifest.data());
  return words;
}

}  // namespace
}  // namespace mortise::cli

extern "C" [[gnu::visibility("default")]] int mortise_main(int argc, char** argv) {
  return mortise::cli::command_line(argc, argv, mortise::cli::run);
}

extern "C" [[gnu::visibility("default")]] int mortise_program_main(int argc, char** argv,
                                                                   const mortise_program* program) {
  using namespace mortise::cli;
  globals().program = program;
  globals().name = mortise::shell_word(argc > 0 ? argv[0] : "program");
  std::vector<char*> words = words_of(argc, argv, *program);
  return command_line(static_cast<int>(words.size()), words.data(), run);
}
