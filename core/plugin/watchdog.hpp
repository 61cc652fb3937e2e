// A call into a plugin that never comes back.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace mortise {

// Ends the process with 71 when a call into a plugin neither returns nor calls anything for `limit`.
class CallWatchdog {
 public:
  explicit CallWatchdog(std::chrono::duration<double> limit);
  ~CallWatchdog();
  CallWatchdog(const CallWatchdog&) = delete;
  CallWatchdog& operator=(const CallWatchdog&) = delete;

 private:
  void watch();
  std::chrono::duration<double> limit_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace mortise
