// Hears of a lost rank while everything else waits for it: whoever waits for a collective on the device waits in a
// kernel that no host can end, and so does its host.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "plugins/comm/meeting.hpp"

namespace mortise::comm {

// What is watched beside the other ranks. On the watch's thread.
struct Progress {
  virtual ~Progress() = default;
  virtual void begin() {}                       // before all others
  virtual void mark() = 0;                      // where the device's queue is now
  virtual bool is_reached() = 0;                // the mark
  virtual std::string trouble() { return ""; }  // what else went wrong; "": nothing
};

// Several times a second every rank's watch adds up a number with those of the others, over connections of their own.
// Where a process ended its connections are closed at once; one that is stopped is given up after `timeout`. So is a
// device that does not come further for that long.
class Watch {
 public:
  using Lost = std::function<void(const std::string& why)>;
  // `beats`: those connections, which nobody else uses; gone once it watches no more (it has told `lost`, or the device
  // fails), as another rank may wait for this one's part while this one's host waits for the other's. A reference: in a
  // run that ends well they go later, once this rank answers no roll call any more.
  Watch(c10::intrusive_ptr<c10d::ProcessGroupGloo>& beats, Progress& progress, Milliseconds timeout, Lost lost);
  ~Watch();  // waits for a beat that is under way: no longer than `timeout`
  // Returns at once, unless something speaks for a loss and `lost` was not told yet: then once it was, or all is over.
  void await_verdict();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void run();
  std::string look();  // what is lost; ""
  bool is_over(Milliseconds after);
  void doubt(bool is_unsure);

  c10::intrusive_ptr<c10d::ProcessGroupGloo>& beats_;
  Progress& progress_;
  const Milliseconds timeout_;
  const Lost lost_;
  Clock::time_point marked_;
  std::mutex mutex_;
  std::condition_variable changed_;  // one of these two
  bool is_over_ = false, is_unsure_ = false;
  std::thread thread_;  // last made: it uses all of these
};

}  // namespace mortise::comm
