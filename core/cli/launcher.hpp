// `--ranks N`: this process starts N ranks on this machine, lets them train, and says how they ended.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/cli/common.hpp"

namespace mortise::cli {

// How many ranks this process is to start: what `--ranks` of `train`, `resume` and `eval` says; 1: none, it does the
// work itself. Throws Failure, also where a launcher has started it as a rank already, or should have.
int ranks_asked(const Verb& verb, const Arguments& args);

// The number that `--ranks N|all` says: of all, one for each device of the kind there are most of, else for each
// processor. Throws Failure.
int ranks_of_flag(const Arguments& args);

// How many ranks share this host: what started this one says it, or `--ranks` of a plan. Throws Failure.
int ranks_here(const Verb& verb, const Arguments& args);

// The words without a flag and its value.
std::vector<std::string> without_flag(const std::vector<std::string>& words, const std::string& flag);

// How long the others are waited for when a rank has ended.
struct Patience {
  std::chrono::milliseconds begins = std::chrono::milliseconds(300);  // before there is a run; then SIGKILL
  std::chrono::milliseconds lost = std::chrono::seconds(2);           // it was lost, or failed; then SIGTERM. Or this
                                                                      // process was interrupted twice; then SIGKILL
  std::chrono::milliseconds stopped = std::chrono::seconds(60);  // it stopped as it was asked to: rank 0 may be saving
  std::chrono::milliseconds killed = std::chrono::seconds(5);    // from SIGTERM to SIGKILL
  std::chrono::milliseconds silent = std::chrono::seconds(10);   // all are to end; then a line says who has not
};

// `words`: the command line, with the program's name and without `--ranks`. Returns when every rank has ended: rank 0's
// exit code, or that of the rank that is to blame. Rank 0 has this process's input and output; of another it is told
// how it failed, if rank 0 did not fail the same way. `program`: what is started; another one in tests.
int run_ranks(int n, const std::vector<std::string>& words, const std::string& program = "/proc/self/exe",
              const Patience& patience = {});

}  // namespace mortise::cli
