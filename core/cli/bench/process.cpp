#include "core/cli/bench/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/base/text.hpp"
#include "core/cli/signals.hpp"

namespace mortise::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr auto kPatience = std::chrono::seconds(10);  // of a row that was asked to end
constexpr int kNotStarted = 127;                      // as a shell has it

// Between fork and exec: nothing but system calls.
[[noreturn]] void become(char* const* words, const char* output, pid_t parent) {
  ::setpgid(0, 0);  // Ctrl-C is for the bench, which ends its row
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  const int out = ::open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (null < 0 || out < 0 || ::dup2(null, STDIN_FILENO) < 0) ::_exit(kNotStarted);
  if (::dup2(out, STDOUT_FILENO) < 0 || ::dup2(out, STDERR_FILENO) < 0) ::_exit(kNotStarted);
  ::execvp(words[0], words);
  const char* why = std::strerror(errno);
  for (const char* part : {"error: ", static_cast<const char*>(words[0]), " cannot be started: ", why, "\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  ::_exit(kNotStarted);
}

// The lines of a file that somebody else is adding to, each once.
class Tail {
 public:
  explicit Tail(std::string path) : path_(std::move(path)) {}
  void read(const std::function<void(std::string_view)>& line) {
    if (!in_.is_open()) in_.open(path_, std::ios::binary);
    if (!in_.is_open()) return;
    in_.clear();
    for (char buffer[65536]; in_.read(buffer, sizeof buffer), in_.gcount() > 0; in_.clear())
      text_.append(buffer, static_cast<size_t>(in_.gcount()));
    size_t at = 0;
    for (size_t end; (end = text_.find('\n', at)) != text_.npos; at = end + 1)
      line(std::string_view(text_).substr(at, end - at));
    text_.erase(0, at);
  }

 private:
  std::string path_, text_;
  std::ifstream in_;
};

int exit_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

RowEnd run_row(const RowProcess& row, const std::function<void(std::string_view line)>& line,
               const std::function<void()>& now) {
  std::vector<char*> words;
  for (const std::string& word : row.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const auto began = Clock::now();
  const pid_t self = ::getpid(), child = ::fork();
  if (child == 0) become(words.data(), row.output.c_str(), self);
  if (child < 0) {
    std::ofstream(row.output) << "error: no process can be started: " << std::strerror(errno) << "\n";
    return {.exit = kNotStarted};
  }
  ::setpgid(child, child);  // whoever of the two comes first
  RowEnd end;
  Tail tail(row.metrics);
  Clock::time_point asked;
  for (siginfo_t ended{}; ended.si_pid != child;) {
    if (end_asked() && !end.asked) {
      end.asked = true;
      asked = Clock::now();
      ::kill(-child, SIGTERM);
    }
    if (end.asked && Clock::now() - asked > kPatience) ::kill(-child, SIGKILL);
    ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    tail.read(line);
    now();
    if (ended.si_pid != child) std::this_thread::sleep_for(kLook);
  }
  ::kill(-child, SIGKILL);  // whoever it has left behind; until it is waited for, its number is nobody else's
  int status = 0;
  ::waitpid(child, &status, 0);
  end.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  end.exit = exit_of(status);
  return end;
}

std::string why_it_failed(const std::string& output, int exit) {
  constexpr size_t kMostLines = 10'000, kLongest = 500;
  std::ifstream in(output);
  std::string line, error, last;
  for (size_t n = 0; n < kMostLines && error.empty() && std::getline(in, line); ++n) {
    if (line.starts_with("error")) error = line;
    if (!line.empty()) last = line;
  }
  if (error.empty() && exit > 128) error = std::string("ended by a signal: ") + ::strsignal(exit - 128);
  if (error.empty()) error = "exit " + std::to_string(exit) + (last.empty() ? "" : ": " + last);
  error.resize(std::min(error.size(), kLongest));
  while (!is_utf8(error)) error.pop_back();
  return escape_control(error);
}

}  // namespace mortise::cli
