#include "core/plugin/crash.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>

#include "core/base/text.hpp"
#include "core/plugin/endings.hpp"

namespace mortise {
namespace {

std::atomic<bool> late_failure{false};

std::function<void(const Diagnostic&)>& printer() {
  static auto* const function =
      new std::function<void(const Diagnostic&)>([](const Diagnostic& d) { print(std::cerr, d, /*colour=*/false); });
  return *function;
}
std::function<void(int)>& when_ended() {
  static auto* const function = new std::function<void(int)>();
  return *function;
}

// Of those around this thread the innermost plugin; the core never ends the process in the middle of a call.
const PluginCall* innermost_plugin() {
  const PluginCall* call = current_call();
  while (call && call->plugin.empty()) call = call->outer;
  return call;
}

[[noreturn]] void leave(int status, void*) {
  std::fflush(nullptr);
  _exit(late_failure && status == 0 ? kExitPlugin : status);
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
  if (late_failure && status == 0) leave(status, nullptr);
}

}  // namespace

void copy_text(char* to, size_t room, std::string_view text) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

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

std::string describe(const PluginCall& call) {
  return "`" + std::string(call.what) + "`" + (call.where.empty() ? "" : " at " + std::string(call.where));
}

Diagnostic with_run(Diagnostic d) {
  if (!run_texts.active) return d;
  d.at = "step " + with_commas(run_texts.step);
  const int64_t saved = last_checkpoint();
  d.effect = saved < 0 ? "the run stopped; nothing is saved yet"
                       : "the run stopped; last checkpoint is step " + with_commas(saved);
  if (saved >= 0) d.fixes.push_back(run_texts.resume);
  return d;
}

Diagnostic ending(std::string code, std::string message, std::string plugin) {
  Diagnostic d = trouble(kExitPlugin, std::move(code), std::move(message));
  d.plugin = std::move(plugin);
  return with_run(std::move(d));
}

[[noreturn]] void end_process(const Diagnostic& d) {
  if (pid_t none = 0; !ending_thread.compare_exchange_strong(none, gettid()))
    for (;;) pause();  // another thread is at it
  printer()(d);
  if (run_texts.active && when_ended()) when_ended()(d.exit);
  leave_process(d.exit);
}

[[noreturn]] void end_at_once(const Diagnostic& d) { end_process(with_run(d)); }

[[noreturn]] void leave_process(int exit) {
  std::cout.flush();
  std::fflush(nullptr);
  _exit(exit);
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

void leave_out_exit_handlers_so_far() { on_exit(leave, nullptr); }

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

void report_late_failure(const Diagnostic& d) {
  printer()(d);
  late_failure = true;
}

bool any_late_failure() { return late_failure; }

}  // namespace mortise
