// libmortise.so: the verbs that compute, with the engine and rooms of its own. It shares nothing with the program that
// loads it but argc and argv.
#include "core/cli/command_line.hpp"

namespace mortise::cli {
namespace {

int run(const std::string& verb, const Arguments& args) {
  if (verb == "plan" && !asks_for_structure(args)) return plan_with(args, make_host);
  if (const Work work = light_work(verb)) return work(args);
  if (verb == "train") return train(args);
  if (verb == "resume") return resume(args);
  if (verb == "sample") return sample(args);
  return eval(args);
}

}  // namespace
}  // namespace mortise::cli

extern "C" [[gnu::visibility("default")]] int mortise_main(int argc, char** argv) {
  return mortise::cli::command_line(argc, argv, mortise::cli::run);
}
