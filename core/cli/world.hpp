// Which rank of how many this process is, as whoever started it says in the environment.
#pragma once
#include <string>

#include "core/base/world.hpp"

namespace mortise::cli {

inline constexpr const char* kOwnLauncher = "--ranks";     // World::by of ranks that `--ranks N` started
inline constexpr const char* kToldTo = "MORTISE_TOLD_FD";  // of rank 0: where `--ranks N` hears of it

// Which run this process has begun, and what goes on with it, for the parent of `--ranks N` if that started it: the
// directory, and on lines of their own the command, `again`, words by which a start from nothing finds it, and kSaves
// while a stop would be saved: not before the first step, nor once a rank is lost.
void tell_parent(const std::string& dir, const std::string& resume_command, const std::string& again, bool saves);
inline constexpr const char* kSaves = "saves";

// As torchrun, `--ranks`, Open MPI, another MPI or Slurm has it, the innermost of them; a world of one if nobody
// started several. Throws Failure where the variables contradict one another, or lack what the ranks need to meet.
World world_of_environment();

// "without torchrun": how this process is started as a single one.
std::string without_launcher(const World& world);

// Slurm gave this job several tasks, and nobody started them: the allocation without srun. Throws Failure.
void refuse_tasks_not_started(const World& world);

// What Slurm abbreviates. The first host of "node[017-018],login", the tasks of node 1 of "4(x2),3"; "" and 0: it is no
// such text.
std::string first_host(const std::string& hosts);
int tasks_of_node(const std::string& tasks, int node);

}  // namespace mortise::cli
