#include "core/cli/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>

#include "core/base/progress.hpp"
#include "core/base/text.hpp"
#include "core/cli/rank_process.hpp"
#include "core/cli/run_directory.hpp"
#include "core/cli/world.hpp"
#include "core/plan/devices.hpp"

namespace mortise::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr off_t kMostSaid = 64 << 10;             // bytes that are kept of what a rank says
constexpr size_t kMostLines = 40;                 // of them, that are told
constexpr auto kLook = std::chrono::seconds(10);  // at what the ranks have said meanwhile

constexpr int kHandled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};  // by a training

[[noreturn]] void refuse_start(const std::string& what) {
  throw Failure(trouble(kExitUnavailable, "ranks_not_started", what + ": " + std::strerror(errno)));
}

bool is_ignored(int signal) {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// Of `mortise eval`: signals end it as they end any program, and there is nothing to go on with.
bool only_measures(const std::vector<std::string>& words) { return words.size() > 1 && words[1] == "eval"; }

// ---- the ranks ----

struct Rank {
  int number = 0;
  pid_t pid = -1;  // -1: it is not there, or has been waited for
  int says = -1;   // what it said, in memory; -1: rank 0, which speaks itself
  int status = 0;
  bool ended_by_us = false;
};

// By rank 0: of the run that these ranks have begun the folder, the command that goes on with it, and what one that
// begins it once more says beside; `saves`: rank 0 would save a stop.
struct Told {
  std::string dir, go_on, again;
  bool saves = false;
};

class Children {
 public:
  Children(int n, const Patience& patience);
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  void start(const std::vector<std::string>& words, const std::string& program);
  void wait();
  int tell(const std::vector<std::string>& words) const;

 private:
  void start(Rank& rank, const std::vector<std::string>& words, const std::string& program, int listens, int port);
  sigset_t blocked_in_a_rank() const;
  int until_next() const;
  void take_signals();
  void interrupted();
  void send(int signal, bool to_end);
  void take_ended();
  void ended(Rank& rank, int status);
  void end_others();
  void others_are_to_end() { silent_until_ = Clock::now() + patience_.silent; }
  void say_who_is_waited_for();
  void forget_old_words();
  bool is_lost(const Rank& rank) const;
  const Rank* to_blame() const;
  int exit_of(const Rank& rank) const;
  bool others_may_save(const Rank& rank) const;
  bool is_stopped(const Rank& rank) const;
  Told told() const;
  bool has_begun() const { return measures_ || !told().dir.empty(); }
  std::string same_command(const std::vector<std::string>& words) const;
  std::vector<std::string> last_lines(const Rank& rank) const;
  void tell_words(const Rank& rank) const;
  int tell_lost(const Rank& rank, const std::string& message, const std::vector<std::string>& words) const;

  std::vector<Rank> all_;
  std::vector<const Rank*> ended_;  // in that order
  Patience patience_;
  sigset_t others_;  // signals that were blocked before this process blocked its own
  // `told_`: in memory, where rank 0 says which run it has begun.
  int signals_ = -1, null_ = -1, told_ = -1, asked_ = 0;
  bool measures_ = false;                           // only
  std::optional<Clock::time_point> interrupted_;    // first
  bool waits_no_more_ = false;                      // it was interrupted again
  int next_ = SIGTERM;                              // for those that do not end
  std::optional<Clock::time_point> until_, limit_;  // `limit_`: if they have begun a run
  std::optional<Clock::time_point> silent_until_;   // after they were asked to end, or another has
};

Children::Children(int n, const Patience& patience) : all_(static_cast<size_t>(n)), patience_(patience) {
  for (int i = 0; i < n; ++i) all_[static_cast<size_t>(i)].number = i;
  ::signal(SIGCHLD, SIG_DFL);  // whoever started this may have it ignored, and then nobody can be waited for
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kHandled) sigaddset(&set, signal);
  // They stay held to the end of this process: one that comes as the last rank ends must not kill it.
  sigprocmask(SIG_BLOCK, &set, &others_);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  null_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  told_ = ::memfd_create("told", MFD_CLOEXEC);
  if (signals_ < 0 || null_ < 0 || told_ < 0) refuse_start("the ranks cannot be watched");
}

Children::~Children() {
  for (const Rank& rank : all_)  // only if starting them failed
    if (rank.pid > 0 && ::kill(rank.pid, SIGKILL) == 0) ::waitpid(rank.pid, nullptr, 0);
  for (const Rank& rank : all_)
    if (rank.says >= 0) ::close(rank.says);
  for (const int fd : {signals_, null_, told_})
    if (fd >= 0) ::close(fd);
}

void Children::start(const std::vector<std::string>& words, const std::string& program) {
  measures_ = only_measures(words);
  int port = 0;
  const int listens = listening_socket(port);
  if (listens < 0) refuse_start("the ranks have no socket to meet at");
  std::cout.flush();
  try {
    for (Rank& rank : all_) start(rank, words, program, listens, port);
  } catch (...) {
    ::close(listens);
    throw;
  }
  ::close(listens);  // when rank 0 is gone, nobody listens there
}

void Children::start(Rank& rank, const std::vector<std::string>& words, const std::string& program, int listens,
                     int port) {
  if (rank.number > 0) {
    rank.says = ::memfd_create(("rank " + std::to_string(rank.number)).c_str(), MFD_CLOEXEC);
    if (rank.says < 0) refuse_start("a rank has nothing to write to");
    ::fcntl(rank.says, F_SETFL, O_APPEND);
  }
  rank.pid = begin_rank({.words = words,
                         .program = program,
                         .rank = rank.number,
                         .ranks = static_cast<int>(all_.size()),
                         .port = port,
                         .listens = rank.number == 0 ? listens : -1,
                         .told = rank.number == 0 ? told_ : -1,
                         .null = null_,
                         .says = rank.says,
                         .blocked = blocked_in_a_rank()});
  if (rank.pid < 0) refuse_start("rank " + std::to_string(rank.number) + " cannot be started");
}

sigset_t Children::blocked_in_a_rank() const {
  sigset_t set = others_;
  if (!measures_)
    for (const int signal : kHandled) sigaddset(&set, signal);
  return set;
}

void Children::wait() {
  while (ended_.size() < all_.size()) {
    pollfd signals{signals_, POLLIN, 0};
    ::poll(&signals, 1, until_next());
    take_signals();
    take_ended();
    end_others();
    say_who_is_waited_for();
    forget_old_words();
  }
}

int Children::until_next() const {
  Clock::duration left = kLook;
  for (const auto& next : {until_, silent_until_})
    if (next) left = std::clamp(*next - Clock::now(), Clock::duration(0), left);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void Children::take_signals() {
  for (signalfd_siginfo s{}; ::read(signals_, &s, sizeof s) == sizeof s;) {
    const int signal = static_cast<int>(s.ssi_signo);
    const bool hangs_up = signal == SIGHUP && (!measures_ || is_ignored(SIGHUP));  // a training goes on
    if (signal != SIGCHLD && (signal != SIGUSR1 || measures_) && !hangs_up) {
      if (!asked_) others_are_to_end();
      asked_ = signal;
    }
    if (signal == SIGINT) interrupted();
    // A terminal's Ctrl-C has reached the ranks too, which are of this process's group.
    const bool by_terminal = signal == SIGINT && s.ssi_code == SI_KERNEL;
    if (signal != SIGCHLD && !hangs_up && !by_terminal) send(signal, /*to_end=*/false);
  }
}

// The second time the person does not want to wait: the ranks have left, or hang.
void Children::interrupted() {
  constexpr auto kOnePress = std::chrono::milliseconds(500);  // `timeout -s INT` sends its signal twice
  const auto now = Clock::now();
  if (!interrupted_) interrupted_ = now;
  if (now - *interrupted_ < kOnePress || waits_no_more_) return;
  waits_no_more_ = true;
  until_ = std::min(until_.value_or(now + patience_.lost), now + patience_.lost);
  next_ = SIGKILL;
}

void Children::send(int signal, bool to_end) {
  for (Rank& rank : all_)
    if (rank.pid > 0) {
      if (to_end) rank.ended_by_us = true;
      ::kill(rank.pid, signal);
    }
}

void Children::take_ended() {
  for (Rank& rank : all_) {
    int status = 0;
    if (rank.pid > 0 && ::waitpid(rank.pid, &status, WNOHANG) == rank.pid) ended(rank, status);
  }
}

void Children::ended(Rank& rank, int status) {
  rank.pid = -1;
  rank.status = status;
  ended_.push_back(&rank);
  if (exit_of(rank) == kExitOk && !asked_) others_are_to_end();
  if (exit_of(rank) == kExitOk || rank.ended_by_us || next_ != SIGTERM) return;
  const auto now = Clock::now(), until = now + (others_may_save(rank) ? patience_.stopped : patience_.lost);
  limit_ = std::min(limit_.value_or(until), until);
  until_ = std::min(has_begun() ? *limit_ : now + patience_.begins, *limit_);
}

void Children::end_others() {
  if (!until_ || Clock::now() < *until_) return;
  if (next_ == SIGTERM && Clock::now() < *limit_) {
    if (has_begun()) {
      until_ = limit_;
      return;
    }
    next_ = SIGKILL;  // there is nothing to save
  }
  const bool is_interrupt = next_ == SIGTERM && !asked_ && !told().saves &&  // else it may be the second
                            exit_of(*ended_.front()) == kExitInterrupted;
  send(is_interrupt ? SIGINT : next_, /*to_end=*/true);
  until_ = next_ == SIGTERM ? std::optional(Clock::now() + patience_.killed) : std::nullopt;
  next_ = SIGKILL;
}

void Children::say_who_is_waited_for() {
  if (!silent_until_ || Clock::now() < *silent_until_) return;
  silent_until_.reset();
  const auto first = std::ranges::find_if(all_, [](const Rank& rank) { return rank.pid > 0; });
  std::ostream* const out = progress_screen().out;
  if (first == all_.end() || !out) return;
  const size_t others = all_.size() - ended_.size() - 1;
  *out << "waiting for rank " << first->number
       << (others > 1 ? " and " + std::to_string(others) + " others"
           : others   ? " and another"
                      : "")
       << (others > 0 ? ", which have" : ", which has") << " not ended; Ctrl-C (SIGINT) "
       << (interrupted_ ? "once more" : "twice") << " ends it\n";
}

// What a rank says is in memory: of a long run only the end is kept.
void Children::forget_old_words() {
  for (const Rank& rank : all_) {
    struct stat said{};
    if (rank.says < 0 || ::fstat(rank.says, &said) != 0 || said.st_size <= kMostSaid) continue;
    ::fallocate(rank.says, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, said.st_size - kMostSaid);
  }
}

// ---- how they ended ----

// Ended by a signal that nobody here has sent.
bool Children::is_lost(const Rank& rank) const {
  if (!WIFSIGNALED(rank.status)) return false;
  const int signal = WTERMSIG(rank.status);
  return signal != asked_ && !(rank.ended_by_us && (signal == SIGTERM || signal == SIGINT || signal == SIGKILL));
}

// It stopped as all were asked to, after a step that rank 0 saves. Asked by nobody here, rank 0 is the last to do so.
bool Children::others_may_save(const Rank& rank) const {
  return is_stopped(rank) && told().saves && (rank.number > 0 || asked_);
}

bool Children::is_stopped(const Rank& rank) const {
  const int exit = exit_of(rank);
  if (is_lost(rank)) return false;
  if (exit != kExitResumable && exit != kExitInterrupted && exit != kExitGuard) return false;
  return std::ranges::none_of(last_lines(rank), [](const std::string& line) {  // else it has lost another
    return line.find("rank_lost") != std::string::npos;
  });
}

// Of one that was ended before it could handle the signal, what it would have been.
int Children::exit_of(const Rank& rank) const {
  if (WIFEXITED(rank.status)) return WEXITSTATUS(rank.status);
  if (measures_ && !rank.ended_by_us) return 128 + WTERMSIG(rank.status);  // as a shell says of one process
  return !rank.ended_by_us && WTERMSIG(rank.status) == SIGINT ? kExitInterrupted : kExitResumable;
}

// From its first error on; without one, all that is left.
std::vector<std::string> Children::last_lines(const Rank& rank) const {
  struct stat said{};
  if (rank.says < 0 || ::fstat(rank.says, &said) != 0 || said.st_size == 0) return {};
  std::string text(static_cast<size_t>(std::min(said.st_size, kMostSaid)), '\0');
  const ssize_t got = ::pread(rank.says, text.data(), text.size(), said.st_size - static_cast<off_t>(text.size()));
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (text.ends_with('\n')) text.pop_back();
  std::vector<std::string> lines = split(text, '\n');
  const auto is_error = [](const std::string& line) {
    return line.starts_with("error") || line.find("\"level\":\"error\"") != std::string::npos;
  };
  lines.erase(lines.begin(),
              std::ranges::none_of(lines, is_error) ? lines.begin() : std::ranges::find_if(lines, is_error));
  if (lines.size() > kMostLines) lines.erase(lines.begin(), lines.end() - kMostLines);
  return lines;
}

void Children::tell_words(const Rank& rank) const {
  const std::string number = std::to_string(rank.number), unknown = "\"rank\":null";
  for (std::string line : last_lines(rank)) {
    if (const size_t at = line.find(unknown); globals().json && line.starts_with("{") && at != std::string::npos)
      std::cerr << line.replace(at, unknown.size(), "\"rank\":" + number) << "\n";
    else std::cerr << "rank " << number << ": " << line << "\n";
  }
}

Told Children::told() const {
  std::string text(16 << 10, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::pread(told_, text.data(), text.size(), 0), 0)));
  std::vector<std::string> lines = split(text, '\n');
  if (lines.size() < 2) return {};
  lines.resize(4);
  return {lines[0], lines[1], lines[2], lines[3] == kSaves};
}

// Their own words again; `--from` would set aside again what was saved since.
std::string Children::same_command(const std::vector<std::string>& words) const {
  const std::vector<std::string> kept = without_flag(words, "--from");
  std::string command = globals().name;
  for (size_t i = 1; i < kept.size(); ++i) command += " " + shell_word(kept[i]);
  return command + " --ranks " + std::to_string(all_.size());
}

int Children::tell_lost(const Rank& rank, const std::string& message, const std::vector<std::string>& words) const {
  if (rank.number == 0 && stderr_is_redrawn()) std::cerr << "\n";  // it may have been within a line
  tell_words(rank);
  const bool interrupted = waits_no_more_ || (asked_ == SIGINT && rank.ended_by_us);
  Diagnostic d = trouble(interrupted ? kExitInterrupted : kExitResumable, "rank_lost",
                         "rank " + std::to_string(rank.number) + message);
  const auto was_killed = [&](const Rank& r) {
    return &r != &rank && r.ended_by_us && WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL &&
           has_begun();  // else it was not asked to end
  };
  const std::string verb = all_.size() == 2 ? "was" : "were";
  d.effect = all_.size() == 2 ? "the other rank " : "the other ranks ";
  d.effect += std::ranges::any_of(all_, was_killed) ? "did not end, and " + verb + " killed" : "ended too";
  const bool begins = words.size() > 1 && words[1] == "train" && std::ranges::count(words, "--resume") == 0;
  const Told its = told();
  const bool can_go_on = !its.dir.empty() && has_saved(its.dir);
  d.effect += measures_              ? "; nothing was measured"
              : begins && !can_go_on ? "; nothing was saved yet"
                                     : "; what was saved before is there";
  const std::string again = same_command(words) + (begins && !its.dir.empty() ? its.again + " --resume" : "");
  d.fixes = {begins && can_go_on ? its.go_on : again};
  say(d);
  return d.exit;
}

// Whoever failed first. Those that stopped did so because of it, or as they were asked to; a kill follows from nothing.
const Rank* Children::to_blame() const {
  for (const Rank* r : ended_)
    if (is_lost(*r) && WTERMSIG(r->status) == SIGKILL) return r;
  for (const Rank* r : ended_)
    if (const int exit = exit_of(*r);
        is_lost(*r) || (exit != kExitOk && exit != kExitResumable && exit != kExitInterrupted))
      return r;
  return nullptr;
}

int Children::tell(const std::vector<std::string>& words) const {
  const Rank* blamed = to_blame();
  if (blamed && is_lost(*blamed)) {
    const int signal = WTERMSIG(blamed->status);
    return tell_lost(*blamed, " ended: signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")", words);
  }
  if (!blamed)
    for (const Rank* r : ended_)
      if (WIFSIGNALED(r->status) && r->ended_by_us) {
        if (asked_ && !has_begun()) return asked_ == SIGINT ? kExitInterrupted : kExitResumable;  // nothing is lost
        if (!has_begun() && is_stopped(*ended_.front())) return exit_of(*ended_.front());         // by its own signal
        if (ended_.front() != r) tell_words(*ended_.front());  // why it did not wait for this one
        return tell_lost(*r,
                         std::string(" did not end when ") +
                             (waits_no_more_ ? "it was interrupted again" : "another had") + ", and was killed",
                         words);
      }
  const Rank* const first = &all_.front();
  if (!blamed) blamed = first;
  for (const Rank* r : ended_)
    if (exit_of(*blamed) == kExitOk) blamed = r;
  // Of ranks that lost one another who ended first saw it first; rank 0 has spoken.
  const bool lost = exit_of(*blamed) == kExitResumable && exit_of(*first) == kExitResumable;
  const Rank* const speaks = lost && !is_stopped(*ended_.front()) ? ended_.front() : blamed;
  if (lost || exit_of(*blamed) != exit_of(*first)) tell_words(*speaks);
  const bool is_interrupted = exit_of(*blamed) == kExitResumable && exit_of(*ended_.front()) == kExitInterrupted;
  return is_interrupted ? kExitInterrupted : exit_of(*blamed);
}

}  // namespace

std::vector<std::string> without_flag(const std::vector<std::string>& words, const std::string& flag) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == flag) ++i;  // and its value
    else if (!words[i].starts_with(flag + "=")) rest.push_back(words[i]);
  return rest;
}

// ---- --ranks ----

int ranks_of_flag(const Arguments& args) {
  const std::string text = args.last("--ranks");
  if (text == "all") {
    std::vector<std::string> searched;
    Report report;  // whoever needs a plugin that cannot be read says so
    int n = 0;
    for (const auto& [id, info] : catalogue(args, nullptr, searched, report)) n = std::max(n, devices_seen(info));
    return std::min(n > 0 ? n : processors(), kMostStarted);
  }
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kMostStarted)
    throw Failure(mistake("wrong_type",
                          "--ranks is a number of processes from 1 to " + std::to_string(kMostStarted) +
                              ", or all; this is `" + text + "`",
                          {}, "--ranks 2, or --ranks all: one for each GPU, without one for each processor"));
  return n;
}

static bool trains(const Verb& verb) { return verb.name == "train" || verb.name == "resume"; }
static bool runs_in_ranks(const Verb& verb) { return trains(verb) || verb.name == "eval"; }

int ranks_here(const Verb& verb, const Arguments& args) {
  if (verb.name == "plan") return args.has("--ranks") ? ranks_of_flag(args) : 1;
  return runs_in_ranks(verb) ? world_of_environment().local_size : 1;
}

// Each is a process that has LibTorch's own state in it, whatever it trains.
static void must_have_room(int ranks) {
  constexpr int64_t kOfEach = int64_t{100} << 20;
  int64_t here = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), of_container = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> of_container) here = std::min(here, of_container);
  const int64_t most = here / kOfEach;
  if (ranks == 1 || ranks <= most) return;
  Diagnostic d = trouble(kExitUnavailable, "ranks_not_started",
                         with_commas(ranks) + " ranks need " + byte_size(ranks * kOfEach) +
                             " of memory before they train anything, and this host has " + byte_size(here));
  d.effect = "nothing was started";
  d.fixes = {"--ranks " + std::to_string(std::clamp<int64_t>(most, 1, processors())) + ", or ranks on several hosts"};
  throw Failure(d);
}

int ranks_asked(const Verb& verb, const Arguments& args) {
  if (!runs_in_ranks(verb)) return 1;
  const int ranks = args.has("--ranks") ? ranks_of_flag(args) : 1;
  const World world = world_of_environment();
  if (trains(verb) && !args.has("--ranks")) refuse_tasks_not_started(world);
  if (world.size == 1 || !args.has("--ranks")) return must_have_room(ranks), ranks;
  Diagnostic d = mistake("ranks_not_started", world.by + " has started " + std::to_string(world.size) +
                                                  " ranks, and `--ranks` would start more in each of them");
  d.effect = "nothing was started";
  d.fixes = {"leave --ranks out, or start it " + without_launcher(world)};
  throw Failure(d);
}

int run_ranks(int n, const std::vector<std::string>& words, const std::string& program, const Patience& patience) {
  Children ranks(n, patience);
  ranks.start(words, program);
  ranks.wait();
  return ranks.tell(words);
}

}  // namespace mortise::cli
