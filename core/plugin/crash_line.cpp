// The line of a signal: written by the handler, in a process that may be broken.
#include <link.h>
#include <signal.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/plugin/crash.hpp"
#include "core/plugin/endings.hpp"

namespace mortise {
namespace {

// Where the code of each plugin lies. A handler reads it: plain memory that exists from the beginning.
struct Code {
  char plugin[64];
  uintptr_t begin, end;
};
std::array<Code, 512> all_code;
std::atomic<size_t> n_code{0};

std::string_view plugin_at(uintptr_t address) {
  const size_t n = std::min(n_code.load(std::memory_order_acquire), all_code.size());
  for (size_t i = 0; i < n; ++i)
    if (address >= all_code[i].begin && address < all_code[i].end) return all_code[i].plugin;
  return {};
}

struct Registers {
  uintptr_t code = 0, stack = 0;
};

// Of a thread that the core knows nothing of: the plugin whose code stands nearest on its stack, which called what
// crashed in a library, such as abort(). The kernel reads it, and says where it ends.
std::string_view plugin_on_stack(uintptr_t stack) {
  constexpr uintptr_t kMostBytes = uintptr_t{1} << 16;
  uintptr_t words[64];
  for (const uintptr_t end = stack + kMostBytes; stack < end; stack += sizeof words) {
    const iovec to{words, sizeof words}, from{reinterpret_cast<void*>(stack), sizeof words};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != ssize_t{sizeof words}) return {};
    for (const uintptr_t word : words)
      if (const std::string_view plugin = plugin_at(word); !plugin.empty()) return plugin;
  }
  return {};
}

std::string_view plugin_of_thread(const Registers& at) {
  const std::string_view plugin = plugin_at(at.code);
  return plugin.empty() && !calls_of_thread.known ? plugin_on_stack(at.stack) : plugin;
}

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

// Memory that is a file, and the file does not give it: the mistake of nobody's code.
bool is_of_file(int signal, const siginfo_t& info) { return signal == SIGBUS && info.si_code == BUS_ADRERR; }

void add_cause(Line& line, int signal, const siginfo_t& info, const Registers& at) {
  line.add(" (").add(name_of(signal));
  if (is_stack_overflow(signal, info, at)) line.add(", stack overflow");
  else if (info.si_code > 0) line.add(" at 0x").number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
  else if (info.si_pid != getpid()) line.add(", sent by process ").number(static_cast<uint64_t>(info.si_pid));
  line.add(")");
}

void write_line(int signal, const siginfo_t& info, const Registers& at) {
  const PluginCall* call = current_call();
  const std::string_view plugin = call ? call->plugin : plugin_of_thread(at);
  static Line line;  // one thread comes here
  const bool of_file = is_of_file(signal, info);
  const std::string_view code = of_file ? "mapped_file_lost" : plugin.empty() ? "crashed" : "plugin_crashed";
  if (json_lines) line.add("{\"level\":\"error\",\"code\":\"").add(code).add("\",\"message\":\"");
  else line.add("error[").add(code).add("]: ");
  if (of_file) line.add("a file that is mapped cannot be read or has no room: it was cut, or its disk failed");
  else line.foreign(plugin.empty() ? "the core" : plugin).add(" crashed");
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
    line.add("],\"plugin\":\"").foreign(plugin).add("\",\"exit\":").add(of_file ? "74" : "null").add("}");
  }
  line.write();
}

// While another thread ends the process it takes down what this one stands on, and says why. Not for ever: this one may
// hold a lock that the other waits for.
void wait_for_the_end() {
  const auto is_elsewhere = [] { return ending_thread != 0 && ending_thread != gettid(); };
  for (int tenth = 0; tenth < 50 && is_elsewhere(); ++tenth) usleep(100'000);
}

// Only what is safe in a handler. The default action follows: a core file, and the exit status of the signal; of a file
// that is gone, the exit of what cannot be read.
void on_signal(int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> taken{false};
  if (getpid() == guarded_process && taken.exchange(true))
    for (;;) pause();  // another thread is at it, and ends the process
  if (getpid() == guarded_process) wait_for_the_end();
  if (getpid() == guarded_process) write_line(signal, *info, registers_of(context));
  if (is_of_file(signal, *info)) _exit(kExitIo);
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  if (info->si_code <= 0) raise(signal);  // held back until this returns; a fault comes again by itself
}

bool is_ours(int signal) {
  struct sigaction now{};
  return sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal;
}

}  // namespace

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

void release_signals() {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  for (const auto& each : kSignals)
    if (is_ours(each.number)) sigaction(each.number, &action, nullptr);
}

void register_code(const std::string& plugin, const void* begin, size_t bytes) {
  const size_t at = n_code.load();
  if (at == all_code.size()) return;
  copy_text(all_code[at].plugin, sizeof all_code[at].plugin, plugin);
  all_code[at].begin = reinterpret_cast<uintptr_t>(begin);
  all_code[at].end = all_code[at].begin + bytes;
  n_code.store(at + 1, std::memory_order_release);
}

}  // namespace mortise
