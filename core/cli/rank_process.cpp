#include "core/cli/rank_process.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "core/cli/wait_policy.hpp"
#include "core/cli/world.hpp"

namespace mortise::cli {
namespace {

constexpr int kNotStarted = 127;

// This environment, with a rank's own variables in it.
std::vector<std::string> environment_of(const RankStart& s) {
  const auto text = [](int n) { return std::to_string(n); };
  std::vector<std::string> all = {"RANK=" + text(s.rank),       "WORLD_SIZE=" + text(s.ranks),
                                  "LOCAL_RANK=" + text(s.rank), "LOCAL_WORLD_SIZE=" + text(s.ranks),
                                  "MASTER_ADDR=127.0.0.1",      "MASTER_PORT=" + text(s.port),
                                  "MORTISE_LAUNCHED_BY=--ranks"};
  if (s.listens >= 0) all.push_back("MORTISE_LISTEN_FD=" + text(s.listens));
  if (s.told >= 0) all.push_back(std::string(kToldTo) + "=" + text(s.told));
  if (!std::getenv("OMP_NUM_THREADS")) all.push_back("OMP_NUM_THREADS=" + text(threads_of_each(s.ranks)));
  const size_t own = all.size();
  for (char** v = environ; *v; ++v) {
    const std::string_view name = std::string_view(*v).substr(0, std::string_view(*v).find('='));
    const auto is = [&](const std::string& other) { return other.substr(0, other.find('=')) == name; };
    if (name != "MORTISE_LISTEN_FD" && name != kToldTo &&
        std::none_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(own), is))
      all.emplace_back(*v);
  }
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// Between fork and exec: nothing but system calls. Signals that a training handles stay held until it does: none is
// lost, and none ends a rank that has hardly begun.
[[noreturn]] void become(const RankStart& start, pid_t parent, char* const* words, char* const* environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it was gone before that call
  sigprocmask(SIG_SETMASK, &start.blocked, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  for (const int fd : {start.listens, start.told})
    if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
  if (start.says >= 0 && (::dup2(start.null, STDIN_FILENO) < 0 || ::dup2(start.says, STDOUT_FILENO) < 0 ||
                          ::dup2(start.says, STDERR_FILENO) < 0))
    ::_exit(kNotStarted);
  ::execve(start.program.c_str(), words, environment);
  const char* why = ::strerrordesc_np(errno);  // takes no lock, as strerror may
  for (const char* part : {"error: ", start.program.c_str(), " cannot be started: ", why, "\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  ::_exit(kNotStarted);
}

}  // namespace

int processors() {
  const int here = processors_here();
  return here > 0 ? here : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int threads_of_each(int ranks) { return std::max(1, processors() / ranks); }

void share_processors(int ranks) {
  const bool has_some = processors() < ::sysconf(_SC_NPROCESSORS_ONLN);  // as mpirun and srun bind
  if (ranks > 1 && !has_some) ::setenv("OMP_NUM_THREADS", std::to_string(threads_of_each(ranks)).c_str(), 0);
}

int listening_socket(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&at), size) != 0 || ::listen(fd, kMostStarted) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    return -1;
  port = ntohs(at.sin_port);
  return fd;
}

pid_t begin_rank(const RankStart& start) {
  const std::vector<std::string> environment = environment_of(start);
  const std::vector<char*> words = pointers(start.words), variables = pointers(environment);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0) become(start, parent, words.data(), variables.data());
  return pid;
}

}  // namespace mortise::cli
