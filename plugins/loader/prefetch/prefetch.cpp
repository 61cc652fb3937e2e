// Loads ahead, delivers in order. `load` is pure in (split, index), so which thread did it, and whether it was done
// ahead at all, changes nothing: what is not ready when it is wanted, or failed, is simply loaded by the caller. So
// errors are told on the thread that can be heard.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Prefetch {
 public:
  Prefetch() : workers_(config::integer("workers")), depth_(config::integer("depth")) {}
  ~Prefetch() { stop(); }

  void load(mortise_call* call, mortise_next* next) {
    if (workers_ > 0) {
      Batch ready = take(line_of(call, next), call->args[1].v.i);
      if (ready) {
        call->results[0] = value(ready.release());
        return;
      }
    }
    check(api.call->next(api.host, next, call));
  }

  // The data go away after this. Also after an error.
  void end(const mortise_event*) { stop(); }

 private:
  enum class State { kWaiting, kRunning, kDone };
  struct Line;
  struct Item {
    Line* line;
    int64_t index;
    State state = State::kWaiting;
    Batch batch;  // empty after a failure
  };
  // What lies ahead in one split.
  struct Line {
    std::string split;
    Kept kept;
    std::deque<std::shared_ptr<Item>> ahead;
  };

  Line& line_of(const mortise_call* call, mortise_next* next) {
    Line& line = lines_[{std::string(view(call->args[0].v.s)), call->mode}];
    if (!line.kept) {
      line.split = view(call->args[0].v.s);
      line.kept = Kept(call, next);
    }
    return line;
  }

  // Batch `index` if a worker has it or is about to, and orders those behind it. Empty: load it yourself.
  Batch take(Line& line, int64_t index) {
    std::unique_lock lock(mutex_);
    start_workers();
    if (!line.ahead.empty() && line.ahead.front()->index != index) {  // a jump: what lies ahead is of no use
      std::erase_if(queue_, [&](const auto& item) { return item->line == &line; });
      line.ahead.clear();
    }
    std::shared_ptr<Item> item;
    if (!line.ahead.empty()) {
      item = line.ahead.front();
      line.ahead.pop_front();
      if (item->state == State::kWaiting) {
        std::erase(queue_, item);
        item.reset();
      }
    }
    for (int64_t i = index + 1 + static_cast<int64_t>(line.ahead.size()); i <= index + depth_; ++i) {
      line.ahead.push_back(std::make_shared<Item>(Item{&line, i, State::kWaiting, {}}));
      queue_.push_back(line.ahead.back());
    }
    wanted_.notify_all();
    if (!item) return {};
    done_.wait(lock, [&] { return item->state == State::kDone; });
    return std::move(item->batch);
  }

  // With fewer than were asked for, if the machine gives no more: the batches are the same for any number.
  void start_workers() {
    try {
      while (static_cast<int64_t>(threads_.size()) < workers_) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      const std::string what = "thread " + std::to_string(threads_.size() + 1) + " of " + std::to_string(workers_) +
                               " cannot be started: " + e.code().message();
      if (threads_.empty()) throw Error(MORTISE_E_MEMORY, what + "\n  fix: [loader.prefetch] workers = 0");
      workers_ = static_cast<int64_t>(threads_.size());
      log_line(MORTISE_LOG_WARNING, what + "; loading with " + std::to_string(workers_));
    }
  }

  void work() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      wanted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      const std::shared_ptr<Item> item = queue_.front();
      queue_.pop_front();
      item->state = State::kRunning;
      lock.unlock();
      const mortise_value args[] = {value(std::string_view(item->line->split)), value(item->index)};
      mortise_value result = none();
      const bool good = item->line->kept.run(0, args, {&result, 1}) == MORTISE_OK && result.tag == MORTISE_BATCH;
      lock.lock();
      if (good) item->batch = Batch::own(result.v.b);
      item->state = State::kDone;
      done_.notify_all();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    wanted_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    lines_.clear();
    stopping_ = false;
  }

  int64_t workers_;
  const int64_t depth_;
  std::map<std::pair<std::string, uint32_t>, Line>
      lines_;         // by split and mode; only the caller of `load` looks into the map
  std::mutex mutex_;  // of all below, and of every `ahead` and item
  std::condition_variable wanted_, done_;
  std::deque<std::shared_ptr<Item>> queue_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
};
}  // namespace

MORTISE_PLUGIN(Prefetch, mortise::wrap<&Prefetch::load>("load"), mortise::listen<&Prefetch::end>("run.end"))
