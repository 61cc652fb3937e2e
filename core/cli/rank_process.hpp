// A rank that `--ranks` starts, as a process: what it begins with.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace mortise::cli {

constexpr int kMostStarted = 1024;

int processors();  // for this process
// Threads for one of so many ranks of this host: more than processors make each wait for the others. Tells LibTorch,
// which is not loaded yet, if nobody has: in a rank that a launcher has started on processors of all ranks.
int threads_of_each(int ranks);
void share_processors(int ranks);

// A socket on a port that nobody has, of this machine alone; -1: errno says why there is none.
int listening_socket(int& port);

struct RankStart {
  const std::vector<std::string>& words;  // of its command line
  const std::string& program;
  int rank, ranks, port;
  int listens, told;  // -1: not of this rank
  int null, says;     // `says` -1: it has its parent's input and output
  sigset_t blocked;
};
// Its process, which ends with this one; -1: errno says why there is none. One that cannot become the program says so
// and exits 127, as a shell does.
pid_t begin_rank(const RankStart&);

}  // namespace mortise::cli
