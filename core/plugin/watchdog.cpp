#include "core/plugin/watchdog.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/text.hpp"
#include "core/plugin/endings.hpp"

namespace mortise {
namespace {

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

}  // namespace

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
