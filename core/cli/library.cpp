// libmortise.so: the verbs that compute, with the engine and rooms of its own. It shares nothing with the program that
// loads it but argc and argv.
#include <stdexcept>

#include "core/cli/command_line.hpp"

namespace mortise::cli {
namespace {

int run(const Verb& verb, const Arguments& args) {
  if (!verb.work) throw std::logic_error("`" + verb.name + "` is in no file of libmortise.so");
  return verb.work(args);
}

}  // namespace
}  // namespace mortise::cli

extern "C" [[gnu::visibility("default")]] int mortise_main(int argc, char** argv) {
  return mortise::cli::command_line(argc, argv, mortise::cli::run);
}
