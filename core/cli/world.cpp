#include "core/cli/world.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"

namespace mortise::cli {
namespace {

// How one launcher says it.
struct Launcher {
  const char *by, *rank, *size, *local_rank, *local_size;
};
constexpr Launcher kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Launcher kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                               "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher kMpi = {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Launcher kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                             "SLURM_STEP_TASKS_PER_NODE"};

constexpr int kMostRanks = 1 << 20;
// Slurm's numbers of steps from here on are no steps of tasks: the batch script, an interactive shell.
constexpr uint64_t kFirstSpecialStep = 0xFFFFFFF0;

[[noreturn]] void refuse(const std::string& message, const std::string& fix) {
  Diagnostic d = mistake("ranks_not_started", message, {}, fix);
  d.effect = "nothing was started";
  throw Failure(d);
}

// "": it is not set. A variable that is empty says nothing.
std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

std::optional<uint64_t> number_in(const std::string& text) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::optional<int> number(const char* name, int least, int most) {
  const std::string text = variable(name);
  if (text.empty()) return std::nullopt;
  const auto n = number_in(text);
  if (!n || *n < static_cast<uint64_t>(least) || *n > static_cast<uint64_t>(most))
    refuse(std::string(name) + "=" + escape_control(text) + " is no number from " + std::to_string(least) + " to " +
               std::to_string(most),
           "whoever starts the ranks sets it; if nobody does: unset " + std::string(name));
  return static_cast<int>(*n);
}

std::string assigned(const char* name) { return std::string(name) + "=" + escape_control(variable(name)); }

[[noreturn]] void refuse_missing(const Launcher& launcher, const char* is_set, const char* missing) {
  const std::string by = launcher.by;
  refuse(assigned(is_set) + " is set, and " + missing + " is not",
         by + " sets both; if nobody starts several ranks: unset " + is_set);
}

// Rank and size; nothing if the launcher started nobody.
std::optional<World> started_by(const Launcher& launcher, const char* size_name) {
  const auto size = number(size_name, 1, kMostRanks);
  const auto rank = number(launcher.rank, 0, kMostRanks);
  if (!size && rank.value_or(0) > 0) refuse_missing(launcher, launcher.rank, size_name);
  if (!rank && size.value_or(1) > 1) refuse_missing(launcher, size_name, launcher.rank);
  if (rank && !size && number(launcher.local_size, 1, kMostRanks).value_or(1) > 1)
    refuse_missing(launcher, launcher.local_size, size_name);
  if (!rank || !size) return std::nullopt;
  if (*rank >= *size)
    refuse(assigned(launcher.rank) + " is no rank of " + assigned(size_name) + ": they count from 0",
           "start all of them with one command of " + std::string(launcher.by));
  World world;
  world.rank = *rank;
  world.size = *size;
  world.by = launcher.by;
  return world;
}

void check_local(const World& world, const Launcher& launcher) {
  if (world.local_rank < world.local_size && world.local_size <= world.size) return;
  refuse(assigned(launcher.local_rank) + " is no rank of " + std::to_string(world.local_size) + " on this host, of " +
             std::to_string(world.size) + " in all",
         "start all of them with one command of " + std::string(launcher.by));
}

void take_local(World& world, const Launcher& launcher) {
  if (world.size == 1) return;
  const auto rank = number(launcher.local_rank, 0, kMostRanks), size = number(launcher.local_size, 1, kMostRanks);
  if (!rank) refuse_missing(launcher, launcher.size, launcher.local_rank);
  if (!size) refuse_missing(launcher, launcher.size, launcher.local_size);
  world.local_rank = *rank;
  world.local_size = *size;
  check_local(world, launcher);
}

// Below those that the system gives to whoever asks for any, and the same in all ranks.
int port_of(const std::string& job) { return 20000 + static_cast<int>(hash_text(job) % 10000); }

// `host` and `job`: what the launcher itself knows; "": nothing.
void take_meeting_place(World& world, const std::string& host, const std::string& job) {
  if (world.size == 1) return;
  const std::string address = variable("MASTER_ADDR");
  const bool all_here = world.local_size == world.size;
  if (address.empty() && !all_here && host.empty())
    refuse(world.by + " started ranks on several hosts, and MASTER_ADDR does not say where rank 0 is",
           "export MASTER_ADDR=HOST   the host of rank 0, in all ranks");
  world.address = !address.empty() ? address : all_here ? "127.0.0.1" : host;
  const auto port = number("MASTER_PORT", 1, 65535);
  if (!port && job.empty())
    refuse(world.by + " started " + std::to_string(world.size) + " ranks, and MASTER_PORT does not say where they meet",
           "export MASTER_PORT=29500   any that is free on the host of rank 0, the same in all ranks");
  world.port = port ? *port : port_of(job);
}

std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const std::string text = variable(name); !text.empty()) return text;
  return "";
}

// What only `--ranks` says: rank 0 listens already, on a socket that it was given.
int listening_socket() {
  const auto fd = number("MORTISE_LISTEN_FD", 0, 1 << 20);
  if (!fd) return -1;
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(*fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0)
    refuse(assigned("MORTISE_LISTEN_FD") + " is no socket that listens", "unset MORTISE_LISTEN_FD");
  return *fd;
}

std::optional<World> of_torchrun() {
  auto world = started_by(kTorchrun, kTorchrun.size);
  if (!world) return std::nullopt;
  take_local(*world, kTorchrun);
  take_meeting_place(*world, "", "");
  if (variable("MORTISE_LAUNCHED_BY") == kOwnLauncher) {
    world->by = kOwnLauncher;
    if (world->rank == 0) world->listen_fd = listening_socket();
  } else if (world->size > 1 && variable("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    // There torchrun itself listens; each attempt meets elsewhere, so that none meets what is left of another.
    world->port = port_of(variable("MASTER_PORT") + " " + variable("TORCHELASTIC_RUN_ID") + " " +
                          variable("TORCHELASTIC_RESTART_COUNT"));
  }
  return world;
}

std::optional<World> of_open_mpi() {
  auto world = started_by(kOpenMpi, kOpenMpi.size);
  if (!world) return std::nullopt;
  take_local(*world, kOpenMpi);
  take_meeting_place(*world, "", first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}));
  return world;
}

// Slurm's own number of ranks of this step; NULL: this is no step of tasks.
const char* size_of_step() {
  const std::string step = first_of({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!step.empty() && number_in(step).value_or(kFirstSpecialStep) >= kFirstSpecialStep) return nullptr;
  if (!variable(kSlurm.size).empty()) return kSlurm.size;
  return step.empty() || variable("SLURM_NTASKS").empty() ? nullptr : "SLURM_NTASKS";
}

std::optional<World> of_mpi() {
  auto world = started_by(kMpi, kMpi.size);
  if (!world) return std::nullopt;
  // srun speaks PMI too, and says more by its own variables.
  if (size_of_step() && variable(kMpi.size) == variable(size_of_step()) && variable(kMpi.rank) == variable(kSlurm.rank))
    return std::nullopt;
  take_local(*world, kMpi);
  take_meeting_place(*world, "", first_of({"PMI_JOBID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}));
  return world;
}

std::optional<World> of_slurm() {
  const char* const size = size_of_step();
  auto world = size ? started_by(kSlurm, size) : std::nullopt;
  if (!world || world->size == 1) return world;
  const auto rank = number(kSlurm.local_rank, 0, kMostRanks);
  if (!rank) refuse_missing(kSlurm, size, kSlurm.local_rank);
  world->local_rank = *rank;
  const int node = number("SLURM_NODEID", 0, kMostRanks).value_or(0);
  world->local_size =
      tasks_of_node(first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}), node);
  if (world->local_size == 0) refuse_missing(kSlurm, size, kSlurm.local_size);
  check_local(*world, kSlurm);
  // The first host of a step has rank 0. Where srun was called may be another: a login node.
  std::string host = first_host(variable("SLURM_STEP_NODELIST"));
  if (host.empty()) host = variable("SLURM_LAUNCH_NODE_IPADDR");
  const std::string job = variable("SLURM_JOB_ID");
  take_meeting_place(*world, host, job.empty() ? "" : job + "." + variable("SLURM_STEP_ID"));
  return world;
}

}  // namespace

std::string first_host(const std::string& hosts) {
  const std::string first = hosts.substr(0, hosts.find_first_of(",["));
  if (hosts.size() == first.size() || hosts[first.size()] == ',') return first;
  const size_t begin = first.size() + 1, end = hosts.find(']', begin);
  if (end == std::string::npos) return "";
  const std::string numbers = hosts.substr(begin, end - begin);
  // What follows is a part of the name: rack[1-2]node[3-4].
  return first + numbers.substr(0, numbers.find_first_of("-,")) + first_host(hosts.substr(end + 1));
}

int tasks_of_node(const std::string& tasks, int node) {
  for (const std::string& part : split(tasks, ',')) {
    const size_t times = part.find("(x");
    const auto n = number_in(part.substr(0, times));
    const auto nodes = times == std::string::npos || !part.ends_with(')')
                           ? std::optional<uint64_t>(1)
                           : number_in(part.substr(times + 2, part.size() - times - 3));
    if (!n || !nodes || *n > static_cast<uint64_t>(kMostRanks)) return 0;
    if (static_cast<uint64_t>(node) < *nodes || tasks.find_first_of(",(") == std::string::npos)
      return static_cast<int>(*n);
    node -= static_cast<int>(*nodes);
  }
  return 0;
}

void tell_parent(const std::string& dir, const std::string& resume_command, const std::string& again, bool saves) {
  const auto fd = number(kToldTo, 0, 1 << 20);
  if (!fd || variable("MORTISE_LAUNCHED_BY") != kOwnLauncher) return;
  ::fcntl(*fd, F_SETFD, FD_CLOEXEC);
  const std::string text =
      dir + "\n" + resume_command + "\n" + again + "\n" + (saves ? kSaves : "saves nothing") + "\n";
  if (::pwrite(*fd, text.data(), text.size(), 0) < 0) return;  // it then says less
}

World world_of_environment() {
  // The innermost first: mpirun and torchrun may have been started by srun, whose variables are then those of another
  // number of processes.
  for (const auto of : {of_torchrun, of_open_mpi, of_mpi, of_slurm})
    if (const auto world = of()) return *world;
  return {};
}

std::string without_launcher(const World& world) {
  return "without " + world.by + (world.by == kTorchrun.by ? ", or: unset RANK WORLD_SIZE" : "");
}

void refuse_tasks_not_started(const World& world) {
  const std::string tasks = variable("SLURM_NTASKS");
  if (!world.by.empty() || variable("SLURM_JOB_ID").empty() || number_in(tasks).value_or(1) <= 1) return;
  const int here = tasks_of_node(first_of({"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}), 0);
  Diagnostic d = mistake("ranks_not_started", "Slurm gave this job " + tasks + " tasks, and this is a single process");
  d.effect = "nothing was started";
  d.fixes = {"put srun before it: srun mortise …",
             "train on this node alone: --ranks " + std::to_string(std::max(here, 1)),
             "train with this process alone: --ranks 1"};
  if (here <= 1) d.fixes.erase(d.fixes.begin() + 1);
  throw Failure(d);
}

}  // namespace mortise::cli
