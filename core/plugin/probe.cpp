// Asks a child process whether a library can be loaded at all.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "core/base/text.hpp"
#include "core/plugin/load.hpp"
#include "core/plugin/refuse.hpp"

namespace mortise {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostOutput = 1 << 16;
constexpr std::string_view kAnswer = "mortise-probe ";

// How the child ended, and the end of what it wrote to stdout and stderr.
struct Ending {
  bool timed_out = false;
  int status = 0;  // as waitpid gives it
  std::string output;
};

std::string new_nonce() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

// stdin from nowhere, stdout and stderr into the pipe, the libraries under the numbers that they have here, no signal
// blocked or ignored, and a process group of its own, so that whatever a plugin starts can be ended with it.
// posix_spawn, because a process that holds gigabytes should not be forked. Returns an errno.
int start(const char* const* arguments, int out, const std::vector<LoadFrom>& libraries, pid_t& child) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, 1);
  posix_spawn_file_actions_adddup2(&files, out, 2);
  for (const LoadFrom& each : libraries)  // onto itself: it stays open
    if (each.file >= 0) posix_spawn_file_actions_adddup2(&files, each.file, each.file);
  const int error =
      posix_spawn(&child, arguments[0], &files, &attributes, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

// Takes what has arrived; false when nothing more can.
bool take_output(int in, std::string& output) {
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(in, buffer, sizeof buffer);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (n < 0) return true;
    output.append(buffer, static_cast<size_t>(n));
    if (output.size() > kMostOutput) output.erase(0, output.size() - kMostOutput / 2);
  }
}

// The end of the output does not mean that the child ended, nor the other way round: a plugin may close what it writes
// to, or leave a process behind that holds it. So both are watched.
Ending watch(pid_t child, int in, Clock::time_point deadline) {
  Ending ending;
  bool open = true;
  const int end = static_cast<int>(syscall(SYS_pidfd_open, child, 0));  // none before Linux 5.3: found a little later
  for (;;) {
    pollfd wanted[] = {{open ? in : -1, POLLIN, 0}, {end, POLLIN, 0}};
    poll(wanted, 2, open ? 20 : 1);
    if (open) open = take_output(in, ending.output);
    siginfo_t info{};
    const int waited = waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
    ending.timed_out = waited == 0 && info.si_pid == 0 && Clock::now() > deadline;
    if (waited != 0 || info.si_pid != 0 || ending.timed_out) break;
  }
  if (end >= 0) close(end);
  kill(-child, SIGKILL);  // before the child is waited for, while its number cannot be another's
  waitpid(child, &ending.status, 0);
  if (open) take_output(in, ending.output);
  return ending;
}

// The last line that is not empty: what a plugin said before it fell.
std::string last_words(const std::string& output) {
  const std::string said = output.substr(0, output.find_last_not_of(" \r\n") + 1);
  return said.empty() ? "" : "; it said: " + escape_control(said.substr(said.rfind('\n') + 1).substr(0, 200));
}

// What follows `mortise-probe ` on the last line that begins so; "" without one.
std::string find_answer(const std::string& output) {
  std::string answer;
  for (const std::string& line : split(output, '\n'))
    if (line.starts_with(kAnswer)) answer = line.substr(kAnswer.size());
  return answer;
}

// How the helper ended that was to load these, or the errno of what kept it from beginning.
struct Asked {
  int no_pipe = 0, no_start = 0;
  Ending ending;
};

Asked ask(const std::vector<LoadFrom>& libraries, const std::string& helper, const std::string& nonce,
          std::chrono::milliseconds limit) {
  Asked asked;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    asked.no_pipe = errno;
    return asked;
  }
  std::vector<const char*> arguments = {helper.c_str(), nonce.c_str()};
  for (const LoadFrom& each : libraries) arguments.push_back(each.path.c_str());
  arguments.push_back(nullptr);
  pid_t child = 0;
  asked.no_start = start(arguments.data(), ends[1], libraries, child);
  close(ends[1]);
  if (asked.no_start == 0) asked.ending = watch(child, ends[0], Clock::now() + limit);
  close(ends[0]);
  return asked;
}

}  // namespace

bool load_together(const std::vector<LoadFrom>& libraries, const std::string& helper) {
  const std::string nonce = new_nonce();
  return find_answer(ask(libraries, helper, nonce, std::chrono::seconds(2)).ending.output).starts_with(nonce + " ok ");
}

void probe(const PluginInfo& info, const LoadFrom& from, const std::string& helper, std::chrono::milliseconds limit) {
  const std::string& id = info.schema.id;
  const std::string nonce = new_nonce();
  const auto [no_pipe, no_start, ending] = ask({from}, helper, nonce, limit);
  if (no_pipe != 0)
    refuse(info, "probe_silent", "no pipe to mortise-probe: " + std::string(strerror(no_pipe)), {"ulimit -n 1024"});
  if (no_start != 0)
    refuse(info, "probe_silent", "mortise-probe does not start: " + std::string(strerror(no_start)),
           {no_start == EAGAIN || no_start == ENOMEM ? "more processes (ulimit -u), or more memory"
                                                     : "install Mortise again: it belongs at " + helper});
  const std::string answer = find_answer(ending.output), load = nonce + " load ", descriptor = nonce + " descriptor ";
  const std::vector<std::string> to_author = {"leave it out; its author can see it with: " + helper + " 1 " +
                                              info.library};
  if (answer.starts_with(nonce + " ok ")) return;
  if (answer.starts_with(load)) refuse_unloaded(info, answer.substr(load.size()), from.path);
  if (answer.starts_with(descriptor))
    refuse(info, "handshake_failed", id + ": " + answer.substr(descriptor.size()), {kRebuild});
  const std::string words = last_words(ending.output);
  if (ending.timed_out)
    refuse(info, "probe_timed_out",
           id + " was still loading after " + formatted("%.1fs", std::chrono::duration<double>(limit).count()) + words,
           to_author);
  if (WIFSIGNALED(ending.status)) {
    const int signal = WTERMSIG(ending.status);
    refuse(
        info, "probe_crashed",
        id + " crashes while it is loaded: signal " + std::to_string(signal) + " (" + strsignal(signal) + ")" + words,
        to_author);
  }
  if (!answer.empty())
    refuse(info, "probe_silent", id + " answered the probe in our place, with another number", to_author);
  refuse(info, "probe_silent",
         id + " ends the process while it is loaded: exit code " + std::to_string(WEXITSTATUS(ending.status)) + words,
         to_author);
}

}  // namespace mortise
