// The ranks of a run: processes that train one model together, as whoever started them says.
#pragma once
#include <string>

namespace mortise {

struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // of those on this host
  std::string address = "127.0.0.1";   // where rank 0 listens
  int port = 0;
  int listen_fd = -1;  // rank 0: a socket that listens there already; -1: none
  std::string by;      // who started them: "torchrun", "Slurm", "Open MPI", "--ranks"; "": nobody, there is one
};

}  // namespace mortise
