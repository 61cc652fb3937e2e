#include "core/cli/world.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/base/diagnostic.hpp"

extern char** environ;

namespace mortise::cli {
namespace {

using Variables = std::map<std::string, std::string>;

// No launcher's variables but these; those of the test's own launcher come back.
class Environment {
 public:
  explicit Environment(const Variables& these) {
    for (char** v = environ; *v; ++v)
      if (const std::string text = *v; is_launchers(text))
        was_[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    for (const auto& [name, value] : was_) unsetenv(name.c_str());
    for (const auto& [name, value] : these) setenv(name.c_str(), value.c_str(), 1), set_[name];
  }
  ~Environment() {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : was_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static bool is_launchers(const std::string& text) {
    for (const char* prefix : {"RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMIX_", "PMI_", "MPI_",
                               "TORCHELASTIC_", "MORTISE_L", "PBS_JOBID=", "LSB_JOBID="})
      if (text.starts_with(prefix)) return true;
    return false;
  }
  Variables was_, set_;
};

World world_with(const Variables& variables) {
  const Environment here(variables);
  return world_of_environment();
}

// What it is refused with; "": it is not.
std::string refused_with(const Variables& variables) {
  try {
    world_with(variables);
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "ranks_not_started");
    EXPECT_EQ(f.diagnostic.exit, kExitUsage);
    EXPECT_FALSE(f.diagnostic.fixes.empty());
    return f.diagnostic.message;
  }
  return "";
}

Variables with(Variables all, const Variables& others) {
  for (const auto& [name, value] : others) all[name] = value;
  return all;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "first"},
                             {"MASTER_PORT", "29500"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "8812"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_PROCID", "9"},
                          {"SLURM_STEP_NUM_TASKS", "16"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "8(x2)"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
                          {"SLURM_STEP_NODELIST", "node[017-018]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "prterun-here-4711@1"}};

TEST(World, IsOfOneWhereNobodyStartedSeveral) {
  for (const Variables& variables : {Variables{}, Variables{{"WORLD_SIZE", "1"}}, Variables{{"RANK", "0"}},
                                     Variables{{"WORLD_SIZE", ""}, {"RANK", ""}}}) {
    const World world = world_with(variables);
    EXPECT_EQ(world.size, 1);
    EXPECT_EQ(world.rank, 0);
    EXPECT_EQ(world.by, "");
  }
}

TEST(World, IsAsTorchrunSays) {
  const World world = world_with(kTorchrun);
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(world.address, "first");
  EXPECT_EQ(world.port, 29500);
  EXPECT_EQ(world.listen_fd, -1);
  EXPECT_EQ(world.by, "torchrun");
}

TEST(World, MeetsElsewhereWhereTorchrunListensItself) {
  const Variables agent = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "a"}});
  const int port = world_with(agent).port;
  EXPECT_NE(port, 29500);
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 30000);
  EXPECT_EQ(world_with(with(agent, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).port, port) << "all ranks have the same";
  EXPECT_NE(world_with(with(agent, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).port, port) << "and each attempt another";
  EXPECT_EQ(world_with(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port, 29500);
}

TEST(World, HasTheSocketOfWhoeverStartedItHere) {
  const int listens = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(listen(listens, 1), 0);
  Variables ours =
      with(kTorchrun, {{"MORTISE_LAUNCHED_BY", "--ranks"}, {"MORTISE_LISTEN_FD", std::to_string(listens)}});
  EXPECT_EQ(world_with(ours).listen_fd, -1) << "rank 0 alone";
  ours = with(ours, {{"RANK", "0"}, {"LOCAL_RANK", "0"}});
  EXPECT_EQ(world_with(ours).listen_fd, listens);
  EXPECT_EQ(world_with(ours).by, "--ranks");
  close(listens);
  EXPECT_EQ(refused_with(ours), "MORTISE_LISTEN_FD=" + std::to_string(listens) + " is no socket that listens");
}

TEST(World, IsAsAStepOfSlurmSays) {
  const World world = world_with(kSlurm);
  EXPECT_EQ(world.rank, 9);
  EXPECT_EQ(world.size, 16);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 8);
  EXPECT_EQ(world.address, "node017");
  EXPECT_GE(world.port, 20000);
  EXPECT_LT(world.port, 30000);
  EXPECT_EQ(world.by, "Slurm");
  EXPECT_EQ(world_with(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})).port, world.port);
  EXPECT_NE(world_with(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port, world.port);
  EXPECT_NE(world_with(with(kSlurm, {{"SLURM_JOB_ID", "8813"}})).port, world.port);
  const World told = world_with(with(kSlurm, {{"MASTER_ADDR", "ib0"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(told.address, "ib0");
  EXPECT_EQ(told.port, 4000);
  Variables without_list = kSlurm;
  without_list.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(world_with(without_list).address, "10.0.0.1");
  // Of the step, whatever the allocation is for; an old srun tells of the step by the job's names.
  EXPECT_EQ(world_with(with(kSlurm, {{"SLURM_NTASKS_PER_NODE", "4"}})).local_size, 8);
  Variables old = with(kSlurm, {{"SLURM_NTASKS", "16"}});
  old.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(world_with(old).size, 16);
}

TEST(World, IsOfOneInAnAllocationWithoutSrun) {
  Variables batch = {{"SLURM_JOB_ID", "8812"},
                     {"SLURM_NTASKS", "16"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_LOCALID", "0"},
                     {"SLURM_TASKS_PER_NODE", "8(x2)"}};
  for (const char* step : {"", "4294967291", "4294967290"}) {
    const Environment here(with(batch, {{"SLURM_STEP_ID", step}}));
    const World world = world_of_environment();
    EXPECT_EQ(world.size, 1) << step;
    try {
      refuse_tasks_not_started(world);
      ADD_FAILURE() << "one of sixteen trains alone: " << step;
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.message, "Slurm gave this job 16 tasks, and this is a single process");
      EXPECT_EQ(f.diagnostic.fixes,
                (std::vector<std::string>{"put srun before it: srun mortise …", "train on this node alone: --ranks 8",
                                          "train with this process alone: --ranks 1"}));
    }
  }
  for (const Variables& fine :
       {Variables{}, with(batch, {{"SLURM_NTASKS", "1"}}), with(kSlurm, {}), with(batch, kTorchrun)}) {
    const Environment here(fine);
    EXPECT_NO_THROW(refuse_tasks_not_started(world_of_environment()));
  }
}

TEST(World, IsAsMpirunSays) {
  const World world = world_with(kOpenMpi);
  EXPECT_EQ(world.rank, 2);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(world.address, "127.0.0.1");
  EXPECT_GE(world.port, 20000);
  EXPECT_EQ(world.by, "Open MPI");
  EXPECT_EQ(refused_with(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})),
            "Open MPI started ranks on several hosts, and MASTER_ADDR does not say where rank 0 is");
  Variables unknown = kOpenMpi;
  unknown.erase("PMIX_NAMESPACE");
  EXPECT_EQ(refused_with(unknown), "Open MPI started 4 ranks, and MASTER_PORT does not say where they meet");
  EXPECT_EQ(world_with(with(unknown, {{"MASTER_PORT", "4000"}})).port, 4000);

  const Variables mpich = {{"PMI_RANK", "1"},
                           {"PMI_SIZE", "2"},
                           {"MPI_LOCALRANKID", "1"},
                           {"MPI_LOCALNRANKS", "2"},
                           {"MASTER_PORT", "4000"}};
  EXPECT_EQ(world_with(mpich).rank, 1);
  EXPECT_EQ(world_with(mpich).local_size, 2);
  EXPECT_EQ(world_with(mpich).by, "MPI");
}

TEST(World, IsOfTheInnermostLauncher) {
  const World world = world_with(with(with(kSlurm, kTorchrun), kOpenMpi));
  EXPECT_EQ(world.by, "torchrun");
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world_with(with(kSlurm, kOpenMpi)).by, "Open MPI");
  // srun speaks PMI too.
  EXPECT_EQ(world_with(with(kSlurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}})).by, "Slurm");
  // mpirun of another MPI in a step of one task.
  const Variables inside = {{"SLURM_STEP_NUM_TASKS", "1"},      {"SLURM_PROCID", "0"},    {"SLURM_LOCALID", "0"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1"}, {"PMI_RANK", "3"},        {"PMI_SIZE", "4"},
                            {"MPI_LOCALRANKID", "3"},           {"MPI_LOCALNRANKS", "4"}, {"MASTER_PORT", "4000"}};
  EXPECT_EQ(world_with(with(kSlurm, inside)).size, 4);
  EXPECT_EQ(world_with(with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})).size, 1) << "each a run of its own";
}

TEST(World, RefusesVariablesThatContradict) {
  EXPECT_EQ(refused_with(with(kTorchrun, {{"RANK", "8"}})), "RANK=8 is no rank of WORLD_SIZE=8: they count from 0");
  EXPECT_EQ(refused_with(with(kTorchrun, {{"RANK", "two"}})), "RANK=two is no number from 0 to 1048576");
  EXPECT_EQ(refused_with(with(kTorchrun, {{"WORLD_SIZE", "-1"}})), "WORLD_SIZE=-1 is no number from 1 to 1048576");
  EXPECT_EQ(refused_with({{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2 is set, and RANK is not");
  EXPECT_EQ(refused_with({{"RANK", "1"}}), "RANK=1 is set, and WORLD_SIZE is not");
  EXPECT_EQ(world_with({{"LOCAL_WORLD_SIZE", "2"}}).size, 1) << "of nobody's rank";
  EXPECT_EQ(refused_with({{"RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}),
            "LOCAL_WORLD_SIZE=2 is set, and WORLD_SIZE is not");
  EXPECT_EQ(refused_with(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
            "LOCAL_RANK=4 is no rank of 4 on this host, of 8 in all");
  EXPECT_EQ(refused_with(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "16"}})),
            "LOCAL_RANK=1 is no rank of 16 on this host, of 8 in all");
  EXPECT_EQ(refused_with(with(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}})),
            "WORLD_SIZE=8 is set, and LOCAL_WORLD_SIZE is not");
  EXPECT_EQ(refused_with(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "MASTER_PORT=70000 is no number from 1 to 65535");
  EXPECT_EQ(refused_with(with(kSlurm, {{"SLURM_LOCALID", ""}})),
            "SLURM_STEP_NUM_TASKS=16 is set, and SLURM_LOCALID is not");
}

TEST(World, KnowsWhatSlurmAbbreviates) {
  EXPECT_EQ(first_host("node017"), "node017");
  EXPECT_EQ(first_host("node017,node018"), "node017");
  EXPECT_EQ(first_host("node[017-018]"), "node017");
  EXPECT_EQ(first_host("node[3,7-9],login"), "node3");
  EXPECT_EQ(first_host("rack[1-2]node[3,4]-ib,login"), "rack1node3-ib");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(tasks_of_node("8", 3), 8);
  EXPECT_EQ(tasks_of_node("4(x2),3", 1), 4);
  EXPECT_EQ(tasks_of_node("4(x2),3", 2), 3);
  EXPECT_EQ(tasks_of_node("4(x2),3", 3), 0);
  EXPECT_EQ(tasks_of_node("many", 0), 0);
  EXPECT_EQ(tasks_of_node("", 0), 0);
}

}  // namespace
}  // namespace mortise::cli
