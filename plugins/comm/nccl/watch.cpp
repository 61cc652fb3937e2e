#include "watch.hpp"

#include <ATen/ops/from_blob.h>

#include <utility>

namespace mortise::comm {

constexpr Milliseconds kBeat{200};

Watch::Watch(c10::intrusive_ptr<c10d::ProcessGroupGloo>& beats, Progress& progress, Milliseconds timeout, Lost lost)
    : beats_(beats), progress_(progress), timeout_(timeout), lost_(std::move(lost)), thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Watch::is_over(Milliseconds after) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, after, [this] { return is_over_; });
}

void Watch::doubt(bool is_unsure) {
  {
    const std::lock_guard lock(mutex_);
    is_unsure_ = is_unsure;
  }
  changed_.notify_all();
}

void Watch::await_verdict() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_unsure_; });
}

void Watch::run() {
  take_no_signals();
  try {
    progress_.begin();
    progress_.mark();
    marked_ = Clock::now();
    std::string why;
    while (!is_over(kBeat) && why.empty())  // after a loss, a beat more: this rank may be ending too
      if (!(why = look()).empty()) doubt(true);
    if (!is_over(Milliseconds(0))) lost_(why);  // who leaves when all is done is not lost
  } catch (const std::exception&) {             // what a device says that fails, everybody hears who uses it
  }
  doubt(false);
  if (!is_over(Milliseconds(0))) ends_soon([beats = std::move(beats_)]() mutable { beats.reset(); });
}

std::string Watch::look() {
  const auto began = Clock::now();
  try {
    int64_t number = 0;
    std::vector<at::Tensor> one = {at::from_blob(&number, {1}, at::TensorOptions().dtype(at::kLong))};
    beats_->allreduce(one)->wait();
  } catch (const std::exception& e) {
    return "ended or stopped, " + seconds(Clock::now() - began) + " ago: " + plain(e);
  }
  if (const std::string trouble = progress_.trouble(); !trouble.empty()) return "cannot be reached: " + trouble;
  if (progress_.is_reached()) {
    progress_.mark();
    marked_ = Clock::now();
  } else if (Clock::now() - marked_ > timeout_) {
    return "did not come to a collective on the device within " + seconds(timeout_);
  }
  return "";
}

}  // namespace mortise::comm
