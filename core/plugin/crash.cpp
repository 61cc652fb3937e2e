#include "core/plugin/crash.hpp"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>

#include "core/base/text.hpp"

namespace mortise {
namespace {

// ---- what a handler may read: plain memory that exists from the beginning ----

struct Code {
  char plugin[64];
  uintptr_t begin, end;
};
std::array<Code, 512> all_code;
std::atomic<size_t> n_code{0};

struct RunTexts {
  std::atomic<bool> active{false};
  std::atomic<int64_t> step{0};
  char latest[PATH_MAX];      // the link that names the last checkpoint
  char resume[2 * PATH_MAX];  // "mortise resume runs/gpt2"
};
RunTexts run_texts;
std::atomic<pid_t> guarded_process{0};
std::atomic<bool> json_lines{false}, late_failure{false};

std::function<void(const Diagnostic&)>& printer() {
  static auto* const function =
      new std::function<void(const Diagnostic&)>([](const Diagnostic& d) { print(std::cerr, d, /*colour=*/false); });
  return *function;
}
std::function<void(int)>& when_ended() {
  static auto* const function = new std::function<void(int)>();
  return *function;
}

void copy_text(char* to, size_t room, std::string_view text) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

// The step that the link `checkpoints/latest` names; -1 without one. Signal-safe.
int64_t last_checkpoint() {
  char target[64];
  if (!run_texts.active) return -1;
  const ssize_t n = readlink(run_texts.latest, target, sizeof target);
  constexpr std::string_view kBefore = "step-";
  if (n <= static_cast<ssize_t>(kBefore.size()) || n == static_cast<ssize_t>(sizeof target)) return -1;
  const std::string_view name(target, static_cast<size_t>(n));
  if (!name.starts_with(kBefore)) return -1;
  int64_t step = 0;
  for (const char c : name.substr(kBefore.size())) {
    if (c < '0' || c > '9' || step > INT64_MAX / 10 - 9) return -1;
    step = step * 10 + (c - '0');
  }
  return step;
}

std::string_view plugin_at(uintptr_t address) {
  const size_t n = std::min(n_code.load(std::memory_order_acquire), all_code.size());
  for (size_t i = 0; i < n; ++i)
    if (address >= all_code[i].begin && address < all_code[i].end) return all_code[i].plugin;
  return {};
}

// ---- the line of a signal ----

// One line in a buffer of its own; nothing here allocates or locks.
class Line {
 public:
  Line& add(std::string_view text) {
    for (const char c : text) put(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
    return *this;
  }
  // A text from elsewhere: quoted as JSON wants it if the line is an object.
  Line& foreign(std::string_view text) {
    for (const char c : text) {
      if (json_lines && (c == '"' || c == '\\')) put('\\');
      add({&c, 1});
    }
    return *this;
  }
  Line& number(uint64_t n, unsigned base = 10) {
    char digits[24];
    size_t at = sizeof digits;
    do digits[--at] = "0123456789abcdef"[n % base];
    while ((n /= base) != 0);
    return add({digits + at, sizeof digits - at});
  }
  void write() {
    put('\n');
    for (size_t done = 0; done < size_;) {
      const ssize_t n = ::write(STDERR_FILENO, text_ + done, size_ - done);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }

 private:
  void put(char c) {
    if (size_ < sizeof text_ - 1 || c == '\n') text_[std::min(size_++, sizeof text_ - 1)] = c;
    size_ = std::min(size_, sizeof text_);
  }
  char text_[4 * PATH_MAX];
  size_t size_ = 0;
};

constexpr struct {
  int number;
  const char* name;
} kSignals[] = {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGFPE, "SIGFPE"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}};

std::string_view name_of(int signal) {
  for (const auto& s : kSignals)
    if (s.number == signal) return s.name;
  return "a signal";
}

struct Registers {
  uintptr_t code = 0, stack = 0;
};
Registers registers_of(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {static_cast<uintptr_t>(machine.gregs[REG_RIP]), static_cast<uintptr_t>(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
  return {static_cast<uintptr_t>(machine.pc), static_cast<uintptr_t>(machine.sp)};
#endif
}

bool is_stack_overflow(int signal, const siginfo_t& info, const Registers& at) {
  constexpr uintptr_t kNear = uintptr_t{1} << 16;
  const auto address = reinterpret_cast<uintptr_t>(info.si_addr);
  return signal == SIGSEGV && info.si_code > 0 && address + kNear > at.stack && address < at.stack + kNear;
}

void add_cause(Line& line, int signal, const siginfo_t& info, const Registers& at) {
  line.add(" (").add(name_of(signal));
  if (is_stack_overflow(signal, info, at)) line.add(", stack overflow");
  else if (info.si_code > 0) line.add(" at 0x").number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
  else if (info.si_pid != getpid()) line.add(", sent by process ").number(static_cast<uint64_t>(info.si_pid));
  line.add(")");
}

void write_line(int signal, const siginfo_t& info, const Registers& at) {
  const PluginCall* call = current_call();
  const std::string_view plugin = call ? call->plugin : plugin_at(at.code);
  static Line line;  // one thread comes here
  const std::string_view code = plugin.empty() ? "crashed" : "plugin_crashed";
  if (json_lines) line.add("{\"level\":\"error\",\"code\":\"").add(code).add("\",\"message\":\"");
  else line.add("error[").add(code).add("]: ");
  line.foreign(plugin.empty() ? "the core" : plugin).add(" crashed");
  if (call) line.add(" in `").foreign(call->what).add("`");
  if (call && !call->where.empty()) line.add(" at ").foreign(call->where);
  if (!call && !plugin.empty()) line.add(" in a thread of its own");
  add_cause(line, signal, info, at);
  const int64_t saved = last_checkpoint();
  if (run_texts.active) line.add("; step ").number(static_cast<uint64_t>(run_texts.step.load()));
  if (run_texts.active && saved < 0) line.add("; nothing is saved yet");
  if (saved >= 0) line.add("; last checkpoint is step ").number(static_cast<uint64_t>(saved));
  if (saved >= 0 && !json_lines) line.add("; fix: ").add(run_texts.resume);
  if (json_lines) {
    line.add("\",\"fix\":[");
    if (saved >= 0) line.add("\"").foreign(run_texts.resume).add("\"");
    line.add("],\"plugin\":\"").foreign(plugin).add("\",\"exit\":null}");
  }
  line.write();
}

// Only what is safe in a handler. The default action follows: a core file, and the exit status of the signal.
void on_signal(int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> taken{false};
  if (getpid() == guarded_process && taken.exchange(true))
    for (;;) pause();  // another thread is at it, and ends the process
  if (getpid() == guarded_process) write_line(signal, *info, registers_of(context));
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  if (info->si_code <= 0) raise(signal);  // held back until this returns; a fault comes again by itself
}

void take_signals() {
  for (const auto& each : kSignals) {
    struct sigaction now{};
    if (sigaction(each.number, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL)
      continue;  // somebody's already: a sanitizer's, a debugger's
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    sigaction(each.number, &action, nullptr);
  }
}

bool is_ours(int signal) {
  struct sigaction now{};
  return sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal;
}

// ---- an exit, a hang ----

std::string describe(const PluginCall& call) {
  return "`" + std::string(call.what) + "`" + (call.where.empty() ? "" : " at " + std::string(call.where));
}

// With what is known of the run.
Diagnostic ending(std::string code, std::string message, std::string plugin) {
  Diagnostic d = trouble(kExitPlugin, std::move(code), std::move(message));
  d.plugin = std::move(plugin);
  if (!run_texts.active) return d;
  d.at = "step " + with_commas(run_texts.step);
  const int64_t saved = last_checkpoint();
  d.effect = saved < 0 ? "the run stopped; nothing is saved yet"
                       : "the run stopped; last checkpoint is step " + with_commas(saved);
  if (saved >= 0) d.fixes.push_back(run_texts.resume);
  return d;
}

[[noreturn]] void end_process(const Diagnostic& d) {
  static std::atomic<bool> taken{false};
  if (taken.exchange(true))
    for (;;) pause();  // another thread is at it
  printer()(d);
  if (run_texts.active && when_ended()) when_ended()(kExitPlugin);
  std::cout.flush();
  std::fflush(nullptr);
  _exit(kExitPlugin);
}

Diagnostic hang_of(const std::vector<const PluginCall*>& calls, std::chrono::duration<double> limit) {
  std::vector<std::string> names;
  for (const PluginCall* call : calls) names.push_back(std::string(call->plugin) + " from " + describe(*call));
  Diagnostic d = ending(
      "plugin_hangs",
      "no return for " + formatted("%gs", limit.count()) + ", which is run.call_timeout: of " + join(names, ", of "),
      std::string(calls.front()->plugin));
  d.fixes.push_back("--set run.call_timeout=default allows any time");
  return d;
}

// Of those around this thread the innermost plugin; the core never ends the process in the middle of a call.
const PluginCall* innermost_plugin() {
  const PluginCall* call = current_call();
  while (call && call->plugin.empty()) call = call->outer;
  return call;
}

void on_process_exit(int status, void*) {
  if (getpid() != guarded_process) return;  // a child that a plugin made
  const PluginCall* call = innermost_plugin();
  // A second thread that exits meanwhile must find a function here too, and wait in it.
  if (call || run_texts.active) on_exit(on_process_exit, nullptr);
  const std::string how = status < 0 ? "quick_exit()" : "exit(" + std::to_string(status) + ")";
  if (call)
    end_process(ending("plugin_exited", std::string(call->plugin) + " called " + how + " in " + describe(*call),
                       std::string(call->plugin)));
  if (run_texts.active) end_process(ending("plugin_exited", "a thread that the core did not start called " + how, ""));
  if (late_failure && status == 0) {
    std::fflush(nullptr);
    _exit(kExitPlugin);
  }
}

// A stack of its own for the handler; freed with the thread, which is known no more then.
class KnownThread {
 public:
  KnownThread() {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    stack_t now{}, own{};
    const bool has_one = sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE);
    own.ss_sp = memory_;
    own.ss_size = kBytes;
    in_use_ = memory_ != MAP_FAILED && !has_one && sigaltstack(&own, nullptr) == 0;
    const std::lock_guard lock(all_threads().mutex);
    all_threads().list.push_back(&calls_of_thread);
  }
  ~KnownThread() {
    {
      const std::lock_guard lock(all_threads().mutex);
      std::erase(all_threads().list, &calls_of_thread);
    }
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (in_use_) sigaltstack(&none, nullptr);
    if (memory_ != MAP_FAILED) munmap(memory_, kBytes);
  }
  KnownThread(const KnownThread&) = delete;
  KnownThread& operator=(const KnownThread&) = delete;

 private:
  static constexpr size_t kBytes = size_t{1} << 16;
  void* memory_;
  bool in_use_ = false;
};

}  // namespace

AllThreads& all_threads() {
  static auto* const all = new AllThreads;  // threads may outlive the statics
  return *all;
}

// Its count begins where no other thread's is: a watchdog may know one that ended, at the same address.
void know_this_thread() {
  static std::atomic<uint64_t> threads{0};
  calls_of_thread.known = true;
  calls_of_thread.changes = ++threads << 40;
  thread_local KnownThread known;
}

void guard_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    guarded_process = getpid();
    take_signals();
    at_quick_exit([] { on_process_exit(-1, nullptr); });
  });
  on_exit(on_process_exit, nullptr);
}

void release_signals() {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  for (const auto& each : kSignals)
    if (is_ours(each.number)) sigaction(each.number, &action, nullptr);
}

void set_guard_output(std::function<void(const Diagnostic&)> print, bool json) {
  printer() = std::move(print);
  json_lines = json;
}

RunUnderWay::RunUnderWay(const std::string& dir, const std::string& resume, std::function<void(int)> ended) {
  copy_text(run_texts.latest, sizeof run_texts.latest, dir + "/checkpoints/latest");
  copy_text(run_texts.resume, sizeof run_texts.resume, resume);
  when_ended() = std::move(ended);
  run_texts.step = 0;
  run_texts.active = true;
}

RunUnderWay::~RunUnderWay() {
  run_texts.active = false;
  when_ended() = nullptr;
}

void RunUnderWay::set_step(int64_t step) {
  run_texts.step = step;
  static int first_calls = 2;  // before and after the first step, which makes much that an exit destroys
  if (first_calls == 0) return;
  --first_calls;
  guard_process();
}

void register_code(const std::string& plugin, const void* begin, size_t bytes) {
  const size_t at = n_code.load();
  if (at == all_code.size()) return;
  copy_text(all_code[at].plugin, sizeof all_code[at].plugin, plugin);
  all_code[at].begin = reinterpret_cast<uintptr_t>(begin);
  all_code[at].end = all_code[at].begin + bytes;
  n_code.store(at + 1, std::memory_order_release);
}

void report_late_failure(const Diagnostic& d) {
  printer()(d);
  late_failure = true;
}

bool any_late_failure() { return late_failure; }

CallWatchdog::CallWatchdog(std::chrono::duration<double> limit) : limit_(limit), thread_([this] { watch(); }) {}

CallWatchdog::~CallWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void CallWatchdog::watch() {
  using Clock = std::chrono::steady_clock;
  struct Seen {
    uint64_t changes;
    Clock::time_point since;
  };
  std::map<const CallsOfThread*, Seen> seen;
  const auto pause = std::clamp(limit_ / 8, std::chrono::duration<double>(0.01), std::chrono::duration<double>(1));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, pause, [this] { return stopped_; })) {
    // A thread that ends waits for this lock, and so its stack stays.
    const std::lock_guard threads(all_threads().mutex);
    std::vector<const PluginCall*> slow;  // one may only wait for what another one does
    bool too_slow = false;
    for (const CallsOfThread* thread : all_threads().list) {
      const uint64_t changes = thread->changes.load(std::memory_order_acquire);
      Seen& last = seen.try_emplace(thread, Seen{changes, Clock::now()}).first->second;
      if (last.changes != changes) last = {changes, Clock::now()};
      const PluginCall* call = thread->innermost.load(std::memory_order_acquire);
      const auto spent = Clock::now() - last.since;
      if (!call || thread->changes != changes || call->plugin.empty() || spent < limit_ / 2) continue;
      slow.push_back(call);
      too_slow = too_slow || spent >= limit_;
    }
    if (too_slow) end_process(hang_of(slow, limit_));
  }
}

}  // namespace mortise
